// Beside a link to a term or a statement stands what it means, while the link has the pointer or the focus.
document.addEventListener("DOMContentLoaded", () => {
  const store = document.querySelector(".previews");
  if (!store) return;
  const card = document.createElement("div");
  card.className = "preview-card";
  card.id = "preview-card";
  card.setAttribute("role", "tooltip");
  card.hidden = true;
  document.body.append(card);
  let owner = null;

  const hide = () => {
    owner?.removeAttribute("aria-describedby");
    owner = null;
    card.hidden = true;
  };
  const show = (link, text) => {
    hide();
    owner = link;
    card.replaceChildren(...text.cloneNode(true).childNodes);
    card.hidden = false;
    link.setAttribute("aria-describedby", card.id);
    const at = link.getBoundingClientRect();
    const left = Math.max(8, Math.min(at.left, document.documentElement.clientWidth - card.offsetWidth - 8));
    const below = at.bottom + card.offsetHeight + 8 < window.innerHeight;
    card.style.left = `${left + window.scrollX}px`;
    card.style.top = `${(below ? at.bottom + 4 : at.top - card.offsetHeight - 4) + window.scrollY}px`;
  };

  for (const link of document.querySelectorAll(".bd-article a.reference.internal[href*='#']")) {
    const text = document.getElementById(`preview-${link.hash.slice(1)}`);
    if (!text) continue;
    for (const event of ["mouseenter", "focus"]) link.addEventListener(event, () => show(link, text));
    for (const event of ["mouseleave", "blur"]) link.addEventListener(event, hide);
  }
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
});
