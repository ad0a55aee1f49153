// Reads out the point of a chart below the pointer, or by the arrow keys; the values are those of the table behind it.
(() => {
  "use strict";
  const STEPS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -6, PageDown: 6, Home: -Infinity, End: Infinity };
  // Where the pointer is; a chart that is drawn anew shows the same place.
  let pointed = null;

  const rows = (chart) => [...chart.querySelectorAll(".behind tbody tr")];
  const placeOf = (row, index) => Number(row.dataset.at ?? index);

  const readout = (chart) => {
    let found = chart.querySelector(".readout");
    if (!found) {
      found = document.createElement("div");
      found.className = "readout";
      found.setAttribute("aria-hidden", "true");
      chart.querySelector(".plot").append(found);
    }
    return found;
  };

  const lines = (chart, row) => {
    const names = [...chart.querySelectorAll(".behind thead th")].slice(1);
    const head = document.createElement("b");
    head.textContent = row.cells[0].textContent;
    // Most points have no deploy.
    const known = names.map((name, index) => [name, row.cells[index + 1]]).filter(([, cell]) => cell.textContent);
    const values = known.map(([name, cell]) => {
      const line = document.createElement("span");
      const value = document.createElement("b");
      value.textContent = cell.textContent;
      line.append(`${name.textContent} `, value);
      return line;
    });
    return [head, ...values];
  };

  const text = (chart, row) =>
    lines(chart, row)
      .map((line) => line.textContent)
      .join(", ");

  const hide = (chart) => {
    chart.querySelector(".cursor").setAttribute("d", "");
    readout(chart).hidden = true;
  };

  const show = (chart, index) => {
    const row = rows(chart)[index];
    if (!row) return;
    const field = chart.querySelector(".field");
    const middle = placeOf(row, index) + 0.5;
    const part = middle / field.viewBox.baseVal.width;
    chart.querySelector(".cursor").setAttribute("d", `M${middle} 0V100`);
    const found = readout(chart);
    found.replaceChildren(...lines(chart, row));
    found.hidden = false;
    const left = field.getBoundingClientRect().left - chart.querySelector(".plot").getBoundingClientRect().left;
    const at = left + part * field.getBoundingClientRect().width;
    // On the side with more room, so that it never leaves the chart.
    found.style.left = part < 0.5 ? `${at + 10}px` : "auto";
    found.style.right = part < 0.5 ? "auto" : `${chart.querySelector(".plot").clientWidth - at + 10}px`;
    const plot = chart.querySelector(".plot");
    plot.setAttribute("aria-valuenow", String(index));
    plot.setAttribute("aria-valuetext", text(chart, row));
  };

  const nearest = (chart, x) => {
    const field = chart.querySelector(".field");
    const box = field.getBoundingClientRect();
    const at = ((x - box.left) / box.width) * field.viewBox.baseVal.width - 0.5;
    let best = 0;
    rows(chart).forEach((row, index, all) => {
      if (Math.abs(placeOf(row, index) - at) < Math.abs(placeOf(all[best], best) - at)) best = index;
    });
    return best;
  };

  const prepare = () => {
    for (const chart of document.querySelectorAll("[data-chart]")) {
      const plot = chart.querySelector(".plot");
      if (plot.hasAttribute("role")) continue;
      const last = rows(chart).length - 1;
      const named = `${chart.id}-title`;
      for (const [name, value] of [
        ["role", "slider"],
        ["tabindex", "0"],
        ["aria-labelledby", named],
        ["aria-valuemin", "0"],
        ["aria-valuemax", String(last)],
        ["aria-valuenow", String(last)],
        ["aria-valuetext", text(chart, rows(chart)[last])],
      ]) {
        plot.setAttribute(name, value);
      }
      chart.querySelector(".field").removeAttribute("role");
      chart.querySelector(".field").setAttribute("aria-hidden", "true");
    }
    const chart = pointed && document.getElementById(pointed.id);
    if (chart?.hasAttribute("data-chart")) show(chart, nearest(chart, pointed.x));
  };

  const chartOf = (event) => (event.target instanceof Element ? event.target.closest(".plot")?.closest("[data-chart]") : null);

  document.addEventListener("pointermove", (event) => {
    const chart = chartOf(event);
    if (pointed && pointed.id !== chart?.id) {
      const before = document.getElementById(pointed.id);
      if (before?.hasAttribute("data-chart")) hide(before);
    }
    pointed = chart ? { id: chart.id, x: event.clientX } : null;
    if (chart) show(chart, nearest(chart, event.clientX));
  });
  document.documentElement.addEventListener("pointerleave", () => {
    const chart = pointed && document.getElementById(pointed.id);
    if (chart?.hasAttribute("data-chart")) hide(chart);
    pointed = null;
  });
  document.addEventListener("keydown", (event) => {
    const chart = chartOf(event);
    if (!chart || event.target !== chart.querySelector(".plot")) return;
    if (event.key === "Escape") return hide(chart);
    const step = STEPS[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const last = rows(chart).length - 1;
    const now = Number(event.target.getAttribute("aria-valuenow"));
    show(chart, Math.min(last, Math.max(0, now + step)));
  });
  document.addEventListener("focusin", (event) => {
    const chart = chartOf(event);
    if (chart && event.target.matches(".plot:focus-visible")) show(chart, Number(event.target.getAttribute("aria-valuenow")));
  });
  document.addEventListener("focusout", (event) => {
    const chart = chartOf(event);
    if (chart) hide(chart);
  });
  // In the same moment in which a page is replaced, so that nothing flickers.
  document.addEventListener("refreshed", prepare);
  prepare();
})();
