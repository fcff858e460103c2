// The form of which_method.py: the same choice as `nearest`; sums of logarithms differ from Python's by rounding at most.
(function () {
  const box = document.getElementById("%(id)s");
  const all = JSON.parse(box.querySelector("script[type='application/json']").textContent);
  const form = box.querySelector("form"), body = box.querySelector("tbody"), said = box.querySelector("output");
  const off = (a, b) => Math.abs(Math.log(a) - Math.log(b));
  const cell = text => { const made = document.createElement("td"); made.textContent = text; return made; };
  function answer() {
    const asked = {};
    for (const input of form.querySelectorAll("input")) {
      asked[input.name] = input.valueAsNumber;
      if (!(asked[input.name] > 0)) { said.textContent = input.name + " must be a positive number."; return; }
    }
    if (asked.minority > asked.n) { said.textContent = "minority must be at most n."; return; }
    const k = form.score.value === "auc" ? 0 : 3;
    let rows = all.rows.filter(r => all.relations[r[1]] === form.relation.value);
    const gaps = rows.map(r => off(r[3], asked.epsilon));
    const least = Math.min(...gaps);
    rows = rows.filter((r, i) => gaps[i] <= least + 1e-9);
    const far = s => off(s[1], asked.n) + off(s[2], asked.minority) + off(s[3], asked.features);
    const near = [...new Set(rows.map(r => r[2]))].sort((a, b) => far(all.sets[a]) - far(all.sets[b]) || a - b);
    body.replaceChildren();
    for (const s of near.slice(0, %(sets)d)) {
      const best = rows.filter(r => r[2] === s).sort((a, b) => b[4 + k] - a[4 + k]).slice(0, %(methods)d);
      best.forEach((r, i) => {
        const line = document.createElement("tr"), set = all.sets[s];
        line.append(cell(i ? "" : set[0] + " (n " + set[1] + ", rare " + set[2] + ", d " + set[3] + ")"),
          cell(all.methods[r[0]]), cell(r[4 + k].toFixed(2)),
          cell(r[5 + k].toFixed(2) + " to " + r[6 + k].toFixed(2)));
        body.append(line);
      });
    }
    said.textContent = "These scores were computed at epsilon = " + rows[0][3] + ", " + form.relation.value + ".";
  }
  form.addEventListener("input", answer);
  form.addEventListener("submit", event => event.preventDefault());
  form.hidden = false;
})();
