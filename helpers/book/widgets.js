// Moves the sliders of widgets.py.
(function () {
  const box = document.getElementById("%(id)s");
  const data = JSON.parse(box.querySelector("script[type='application/json']").textContent);
  const frame = box.querySelector("[data-role=frame]"), cursor = box.querySelector("[data-role=cursor]");
  const line = box.querySelector("[data-role=line]");
  const [left, right, top, bottom] = data.box;
  const share = (v, first, last, log) => log ? Math.log(v / first) / Math.log(last / first) : (v - first) / (last - first);
  const px = x => left + share(x, data.x[0], data.x[data.x.length - 1], data.log[0]) * (right - left);
  const py = y => bottom - share(y, data.range[0], data.range[1], data.log[1]) * (bottom - top);
  const show = v => String(+v.toPrecision(3));
  function draw() {
    const f = +frame.value, c = +cursor.value, curves = data.frames[f];
    box.querySelectorAll("[data-curve]").forEach((path, k) => path.setAttribute("d",
      curves[k].map((y, i) => (i ? "L" : "M") + px(data.x[i]).toFixed(1) + " " + py(y).toFixed(1)).join("")));
    line.setAttribute("x1", px(data.x[c])); line.setAttribute("x2", px(data.x[c]));
    box.querySelectorAll("[data-value]").forEach((cell, k) => { cell.textContent = show(curves[k][c]); });
    box.querySelectorAll("[data-best]").forEach((cell, k) => {
      let best = 0;
      curves[k].forEach((y, i) => { if (y > curves[k][best]) best = i; });
      cell.textContent = show(data.x[best]);
    });
    for (const [input, text] of [[frame, data.names[f]], [cursor, show(data.x[c])]]) {
      input.nextElementSibling.textContent = text; input.setAttribute("aria-valuetext", text);
    }
  }
  for (const input of [frame, cursor]) input.addEventListener("input", draw);
  box.querySelector("[data-role=controls]").hidden = false;
  draw();
})();
