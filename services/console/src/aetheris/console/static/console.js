// Keys, the filter of a list, and quiet while nobody looks. Everything works without it, but with a mouse or Tab.
const typing = (at) => at.closest("input, textarea, select, [contenteditable]");
const shown = (items) => [...items].filter((one) => one.offsetParent !== null);

const step = (by) => {
  const links = shown(document.querySelectorAll("[data-filtered] li a, [data-filtered] tbody th a"));
  if (links.length === 0) return;
  const active = links.indexOf(document.activeElement);
  const at = active >= 0 ? active : links.findIndex((one) => one.hasAttribute("aria-current"));
  const to = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, at + by))];
  to.focus();
  if (to.closest("aside")) to.click();
};

const press = (key) => {
  const at = document.querySelector(`[data-key="${key}"]`);
  if (at === null || at.disabled) return false;
  const folded = at.closest("details");
  if (folded !== null && at.matches("summary")) {
    folded.open = true;
    folded.querySelector("input:not([type=hidden]), textarea, select")?.focus();
  } else {
    at.focus(); // a second key, Enter, says it: nobody decides by a slip
  }
  return true;
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "Escape" && typing(event.target)) return event.target.blur();
  if (typing(event.target)) return;
  const filter = document.getElementById("filter");
  if (event.key === "/" && filter !== null) filter.focus();
  else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
  else if (!/^[are]$/.test(event.key) || !press(event.key)) return;
  event.preventDefault();
});

const filter = document.getElementById("filter");
const narrow = () => {
  const wanted = filter.value.trim().toLowerCase();
  for (const row of document.querySelectorAll("[data-filtered] li, [data-filtered] tbody tr")) {
    row.hidden = wanted !== "" && !row.textContent.toLowerCase().includes(wanted);
  }
};
if (filter !== null && filter.form === null) { // one in a form asks the gateway
  filter.addEventListener("input", narrow);
  document.addEventListener("htmx:after:swap", narrow);
}

document.addEventListener("htmx:before:request", (event) => {
  if (document.hidden) event.preventDefault();
});

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.sent !== undefined) return event.preventDefault(); // pressed twice
  form.dataset.sent = "";
  addEventListener("pageshow", () => delete form.dataset.sent, { once: true });
});
