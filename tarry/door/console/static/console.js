// Refreshes the page when the server says that something changed; pauses while nobody looks.
(() => {
  "use strict";
  const AGAIN = 2000;
  const live = document.getElementById("live");
  const zone = () => document.querySelector("[data-refresh]");
  if (!live || !zone()) return;
  let source = null;
  let timer = 0;
  let isOpen = false;
  let isFresh = true;
  // Something has changed, and the page does not show it yet.
  let isLate = false;

  const isBusy = () => {
    // What a person has opened, typed or marked must not vanish under the hand.
    const selection = document.getSelection();
    const isTyped = (each) => each.value !== each.defaultValue;
    return Boolean(
      zone().querySelector("details[open]") ||
        [...zone().querySelectorAll("input, textarea")].some(isTyped) ||
        zone().contains(document.activeElement) ||
        (selection && !selection.isCollapsed && zone().contains(selection.anchorNode)),
    );
  };

  const show = () => {
    const state = isOpen ? (isFresh ? "on" : "stale") : "off";
    if (live.dataset.state === state) return;
    live.dataset.state = state;
    live.hidden = false;
    live.classList.toggle("off", state !== "on");
    live.textContent = live.dataset[state];
  };

  const refresh = () => {
    isLate = document.hidden || isBusy();
    if (!isLate) document.body.dispatchEvent(new Event("look"));
  };

  const catchUp = () => {
    if (isLate) refresh();
  };

  const close = () => {
    clearTimeout(timer);
    if (source) source.close();
    source = null;
  };

  // Nothing says what changed while no stream was open.
  const openAgain = () => {
    close();
    isLate = true;
    timer = setTimeout(() => {
      open();
      if (!isOpen) refresh();
    }, AGAIN);
  };

  const open = () => {
    close();
    if (document.hidden) return;
    source = new EventSource(live.dataset.live);
    source.addEventListener("open", () => {
      isOpen = true;
      show();
      catchUp();
    });
    source.addEventListener("look", refresh);
    source.addEventListener("end", openAgain);
    source.addEventListener("error", () => {
      isOpen = false;
      show();
      openAgain();
    });
  };

  document.addEventListener("htmx:afterRequest", (event) => {
    isFresh = event.detail.successful;
    show();
  });
  document.addEventListener("visibilitychange", () => {
    isLate = true;
    if (document.hidden) close();
    else open();
  });
  for (const name of ["focusout", "toggle", "selectionchange"]) {
    // Once the event is over: only then is something else focused.
    document.addEventListener(name, () => setTimeout(catchUp), true);
  }
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) open();
  });
  open();
})();
