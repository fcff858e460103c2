// Whatever is wider than its place can be reached with the keyboard and has a name; what fits is no tab stop.
document.addEventListener("DOMContentLoaded", () => {
  const wide =
    ".book-table-scroll, .pst-scrollable-table-container, .cell_output > .output, pre, span.math, div.math mjx-container";
  const article = document.querySelector(".bd-article");
  if (!article) return;

  const kind = (box) => {
    if (box.matches("mjx-container, .math")) return "Formula";
    if (box.querySelector("table")) return "Table";
    return box.closest(".cell_input") ? "Code" : "Text";
  };
  const words = (element) => {
    const copy = element.cloneNode(true);
    for (const link of copy.querySelectorAll("a.headerlink, a[download]")) link.remove();
    return copy.textContent.trim();
  };
  const name = (box) => {
    const caption = box.closest("figure")?.querySelector("figcaption") ?? box.querySelector("caption");
    if (caption) return `${kind(box)}: ${words(caption)}`;
    const heading = box.closest("section:has(> :is(h1, h2, h3, h4))")?.querySelector(":scope > :is(h1, h2, h3, h4)");
    return heading ? `${kind(box)} in ${words(heading)}` : kind(box);
  };
  const margin = 4; // a formula is a little wider than its box
  const mark = () => {
    for (const box of article.querySelectorAll(wide)) {
      if (box.scrollWidth > box.clientWidth + margin) {
        box.tabIndex = 0;
        box.setAttribute("role", "group");
        box.setAttribute("aria-label", name(box));
      } else {
        for (const attribute of ["tabindex", "role", "aria-label"]) box.removeAttribute(attribute);
      }
    }
  };

  let waiting;
  const soon = () => {
    clearTimeout(waiting);
    waiting = setTimeout(mark, 400); // after the theme, which has its own opinion, and after a burst of changes
  };
  window.addEventListener("resize", soon);
  article.addEventListener("toggle", soon, true); // a fold was opened
  article.addEventListener("click", soon);
  window.addEventListener("load", () => (window.MathJax?.startup?.promise ?? Promise.resolve()).then(soon));
  document.fonts.addEventListener("loadingdone", soon); // those of formulas come last
});

// The list of chapters begins where the open one is; the theme would have to scroll title and search away.
document.addEventListener("DOMContentLoaded", () => {
  const list = document.querySelector(".bd-sidebar-primary .sidebar-primary-items__start > :last-child");
  const open = list?.querySelector("li.active a.current");
  if (open) list.scrollTop += open.getBoundingClientRect().top - list.getBoundingClientRect().top - list.clientHeight / 2;
});
