// Refreshes the page when the server says that something changed; pauses while nobody looks.
(() => {
  "use strict";
  const live = document.getElementById("live");
  if (!live || !document.querySelector("[data-refresh]")) return;
  let source = null;

  const isBusy = () => {
    // What a person has opened, typed or marked must not vanish under the hand.
    const zone = document.querySelector("[data-refresh]");
    const selection = document.getSelection();
    return Boolean(
      zone.querySelector("details[open]") ||
        (zone.contains(document.activeElement) && document.activeElement !== zone) ||
        (selection && !selection.isCollapsed && zone.contains(selection.anchorNode)),
    );
  };

  const show = (isOn) => {
    live.hidden = false;
    live.classList.toggle("off", !isOn);
    live.textContent = isOn ? live.dataset.on : live.dataset.off;
  };

  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(live.dataset.live);
    source.addEventListener("open", () => show(true));
    source.addEventListener("error", () => show(false));
    source.addEventListener("look", () => {
      if (!isBusy()) document.body.dispatchEvent(new Event("look"));
    });
  };

  const close = () => {
    if (source) source.close();
    source = null;
  };

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return close();
    open();
    // What changed while nobody looked.
    if (!isBusy()) document.body.dispatchEvent(new Event("look"));
  });
  window.addEventListener("pagehide", close);
  open();
})();
