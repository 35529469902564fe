// Gives buttons that copy a text; without scripts, or where copying is not allowed, the text is
// there to be selected.
"use strict";
(() => {
  if (!navigator.clipboard) return;
  const show = () => document.querySelectorAll("button[data-copy]").forEach((each) => (each.hidden = false));
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("button[data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });
  new MutationObserver(show).observe(document.body, { childList: true, subtree: true });
  show();
})();
