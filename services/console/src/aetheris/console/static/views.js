// Searches that this browser keeps under a name: each is the URL's own question, and nothing of an answer.
const KEPT = "aetheris-views", MOST = 30;
const box = document.getElementById("views");

const kept = () => {
  try {
    const found = JSON.parse(localStorage.getItem(KEPT) ?? "[]");
    return Array.isArray(found) ? found.filter((one) => typeof one?.name === "string" && typeof one?.query === "string") : [];
  } catch {
    return [];
  }
};

const keep = (views) => {
  localStorage.setItem(KEPT, JSON.stringify(views.slice(-MOST)));
  draw();
};

const made = (kind, text, more = {}) => Object.assign(document.createElement(kind), { textContent: text, ...more });

const asked = () => {
  const found = new URLSearchParams(location.search);
  for (const name of ["cursor", ...found.keys()]) if (name === "cursor" || !found.get(name)) found.delete(name);
  return found.toString();
};

const draw = () => {
  const list = made("ul", ""), query = asked();
  for (const view of kept()) {
    const row = made("li", ""), link = made("a", view.name, { href: `/jobs?${new URLSearchParams(view.query)}` });
    if (view.query === query) link.setAttribute("aria-current", "true");
    const drop = made("button", "forget", { type: "button", className: "quiet" });
    drop.setAttribute("aria-label", `Forget ${view.name}`);
    drop.addEventListener("click", () => keep(kept().filter((one) => one.name !== view.name)));
    row.append(link, drop);
    list.append(row);
  }
  const form = made("form", ""), name = made("input", "", { maxLength: 60, required: true, placeholder: "A name" });
  name.setAttribute("aria-label", "Name of this view");
  form.append(name, made("button", "Save this view"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    event.stopPropagation();
    const called = name.value.trim();
    if (called) keep([...kept().filter((one) => one.name !== called), { name: called, query }]);
  });
  list.setAttribute("aria-label", box.dataset.label);
  box.replaceChildren(...(list.children.length ? [list] : []), ...(query ? [form] : []));
  box.hidden = box.children.length === 0;
};

draw();
