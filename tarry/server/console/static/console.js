// The browser knows the zone of its clock; without this script, local time is that of the server.
(() => {
  "use strict";
  const button = document.getElementById("zone");
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (button && name) button.value = name;
})();

// One box selects all of a page.
(() => {
  "use strict";
  const boxes = () => [...document.querySelectorAll("td.box input:not([data-all])")];
  const show = () => {
    for (const each of document.querySelectorAll("[data-all]")) each.hidden = false;
  };
  document.addEventListener("change", (event) => {
    if (!event.target.matches?.("[data-all]")) return;
    for (const each of boxes()) each.checked = event.target.checked;
  });
  document.addEventListener("refreshed", show);
  show();
})();

// Refreshes the page when the server says that something changed; pauses while nobody looks.
(() => {
  "use strict";
  const AGAIN = 2000;
  const LONGEST = 30_000;
  const live = document.getElementById("live");
  const zone = () => document.querySelector("[data-refresh]");
  if (!live || !zone()) return;
  let source = null;
  let timer = 0;
  let isOpen = false;
  let isFresh = true;
  let isAsking = false;
  // Something has changed, and the page does not show it yet.
  let isLate = false;

  const isBusy = () => {
    // What a person has opened, typed or marked must not vanish under the hand.
    const selection = document.getSelection();
    const isTyped = (each) => (each.type === "checkbox" ? each.checked !== each.defaultChecked : each.value !== each.defaultValue);
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

  // What the server shows now; null: it is not to be had. The script of a parsed text does not run.
  const ask = async () => {
    try {
      const answer = await fetch(location.href, { headers: { "Tarry-Refresh": "true" }, redirect: "error", signal: AbortSignal.timeout(LONGEST) });
      if (answer.status === 401) location.reload();
      if (!answer.ok) return null;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      return page.querySelector("[data-refresh]");
    } catch {
      return null;
    }
  };

  const replace = async () => {
    isAsking = true;
    const found = await ask();
    isAsking = false;
    isFresh = found !== null;
    show();
    if (!found) return;
    // A person may have begun something in the meantime.
    isLate = isLate || isBusy();
    if (isBusy()) return;
    zone().replaceWith(document.adoptNode(found));
    document.dispatchEvent(new Event("refreshed"));
    catchUp();
  };

  const refresh = () => {
    isLate = document.hidden || isAsking || isBusy();
    if (!isLate) replace();
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

// Shows the next runs of a schedule while somebody types when it ticks.
(() => {
  "use strict";
  const PAUSE = 300;
  const LONGEST = 10_000;
  const form = document.querySelector("form[data-preview]");
  if (!form) return;
  const names = ["cron", "every", "at", "zone", "until"];
  let timer = 0;
  let asked = 0;

  const look = async () => {
    const number = ++asked;
    const typed = names.map((name) => [name, form.elements[name].value.trim()]).filter(([, value]) => value);
    const address = `${form.dataset.preview}?${new URLSearchParams([["name", form.dataset.name], ...typed])}`;
    try {
      const answer = await fetch(address, { redirect: "error", signal: AbortSignal.timeout(LONGEST) });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const found = page.getElementById("preview");
      // A slow answer must not replace that of what was typed later.
      if (found && number === asked) document.getElementById("preview").replaceChildren(...found.childNodes);
    } catch {
      // The server is away: saving tells.
    }
  };

  form.addEventListener("input", (event) => {
    if (!names.includes(event.target.name)) return;
    clearTimeout(timer);
    timer = setTimeout(look, PAUSE);
  });
})();
