// Filters and sorts the claims register in the browser. Does nothing on pages without it.
document.addEventListener("DOMContentLoaded", () => {
  const table = document.querySelector("table.claims-register");
  const filters = document.querySelector(".claims-filters");
  if (!table || !filters) return;
  const body = table.tBodies[0];
  // All words have to begin a word of the row, in any order: "eq 9" finds "Equation (9)", "table 2" finds "Table II" too.
  const numbers = new Map([["i", "1"], ["ii", "2"], ["iii", "3"], ["iv", "4"], ["v", "5"]]);
  const wordsOf = (text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
  const rows = [...body.rows].map((row, position) => ({
    row,
    position,
    words: wordsOf(row.textContent).flatMap((word) => (numbers.has(word) ? [word, numbers.get(word)] : [word])),
    verdict: row.cells[2].querySelector("strong").textContent,
    ...row.querySelector("[id^=row-]").dataset, // document and chapter, by their short names
  }));

  const apply = () => {
    const wanted = {};
    for (const control of filters.querySelectorAll("[data-filter]")) wanted[control.dataset.filter] = control.value;
    let shown = 0;
    for (const entry of rows) {
      const keep =
        ["document", "verdict", "chapter"].every((key) => !wanted[key] || entry[key] === wanted[key]) &&
        wordsOf(wanted.text).every((start) => entry.words.some((word) => word.startsWith(start)));
      entry.row.hidden = !keep;
      shown += keep;
    }
    // The address says what is shown, so that a link to it shows the same; a fragment leads to one row.
    const chosen = new URLSearchParams(Object.entries(wanted).filter(([, value]) => value));
    if (!location.hash) history.replaceState(null, "", chosen.size ? `?${chosen}` : location.pathname);
    filters.querySelector("output").textContent = `${shown} of ${rows.length} shown`;
  };

  [...table.tHead.rows[0].cells].forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const descending = header.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", descending ? "descending" : "ascending");
      // In the verdict column the verdict is what is sorted, not the reason behind it.
      const key = ({ row }) => (row.cells[column].querySelector("strong") ?? row.cells[column]).textContent.trim();
      rows
        .toSorted((a, b) => (descending ? -1 : 1) * key(a).localeCompare(key(b)) || a.position - b.position)
        .forEach((entry) => body.append(entry.row));
    });
  });
  if (!location.hash) {
    for (const [key, value] of new URLSearchParams(location.search)) {
      const control = [...filters.querySelectorAll("[data-filter]")].find((one) => one.dataset.filter === key);
      if (control) control.value = value;
    }
  }
  filters.addEventListener("input", apply);
  apply();
  // Rows may have been off screen when the page jumped to its fragment.
  if (location.hash.startsWith("#row-")) document.getElementById(location.hash.slice(1))?.scrollIntoView();
});
