// Brings what has changed into the view every ten seconds, without moving it under the reader.
// Without scripts the view says so itself (base.html).
"use strict";
(() => {
  const busy = () =>
    document.hidden ||
    document.activeElement?.matches("input, select") ||
    !document.getSelection().isCollapsed;
  const refresh = async () => {
    if (busy()) return;
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const open = [...document.querySelectorAll("details")].map((each) => each.open);
      for (const part of ["main", "footer"]) {
        document.querySelector(part).replaceWith(fresh.querySelector(part));
      }
      document.querySelectorAll("details").forEach((each, index) => (each.open = open[index] ?? each.open));
      document.title = fresh.title;
    } catch {
      // The detector restarts or cannot be reached: what is shown stays, the next turn tries again.
    }
  };
  setInterval(refresh, 10000);
})();
