// The timeline of a job: rows are fetched as they are looked at, and only those in sight are in the page.
const HEIGHT = 28, BEYOND = 12;
const box = document.getElementById("timeline"), said = document.getElementById("timeline-said");
const sizer = document.createElement("div"), rows = [];
let more = true, loading = false, drawn = [-1, -1];
sizer.className = "rows";
box.append(sizer);

const cell = (kind, text) => {
  const made = document.createElement("span");
  made.className = kind;
  made.textContent = text;
  return made;
};

const drawnRow = ([seq, time, type, step, words, mark], at) => {
  const link = document.createElement("a");
  link.href = box.dataset.event + seq;
  link.className = mark;
  link.style.top = `${at * HEIGHT}px`;
  link.append(cell("seq", seq), cell("time", /T([0-9:]{8}(?:\.[0-9]{1,3})?)/.exec(time)?.[1] ?? time), cell("type", type), cell("step", step), cell("words", words));
  return link;
};

const gap = (at) => {
  if (at === 0) return 0;
  const s = (Date.parse(rows[at][1]) - Date.parse(rows[at - 1][1])) / 1000;
  return s >= 60 ? s : 0;
};

const draw = () => {
  const first = Math.max(0, Math.floor(box.scrollTop / HEIGHT) - BEYOND);
  const end = Math.min(rows.length, Math.ceil((box.scrollTop + box.clientHeight) / HEIGHT) + BEYOND);
  if (more && !loading && end >= rows.length - BEYOND) load();
  if (first === drawn[0] && end === drawn[1]) return;
  drawn = [first, end];
  const focused = document.activeElement?.closest(".rows a")?.href;
  const made = rows.slice(first, end).map((row, index) => {
    const link = drawnRow(row, first + index), idle = gap(first + index);
    if (idle) link.append(cell("idle", `${idle >= 3600 ? `${Math.round(idle / 3600)} h` : `${Math.round(idle / 60)} min`} later`));
    return link;
  });
  sizer.replaceChildren(...made);
  if (focused) made.find((one) => one.href === focused)?.focus({ preventScroll: true });
};

const grown = () => {
  sizer.style.height = `${rows.length * HEIGHT}px`;
  box.style.height = `${Math.min(18, Math.max(3, rows.length)) * HEIGHT + 2}px`;
  said.textContent = `${rows.length}${more ? " and more" : ""} events`;
  drawn = [-1, -1];
  draw();
};

const add = (row) => {
  if (rows.length === 0 || row[0] > rows[rows.length - 1][0]) rows.push(row);
};

const load = async () => {
  loading = true;
  try {
    const after = rows.length ? rows[rows.length - 1][0] : 0;
    const answer = await fetch(`${box.dataset.rows}?after=${after}`, { headers: { Accept: "application/json" } });
    if (!answer.ok || !answer.headers.get("content-type")?.includes("json")) throw new Error();
    const found = await answer.json();
    found.rows.forEach(add);
    more = found.more && found.rows.length > 0;
  } catch {
    more = false;
    said.textContent = "The events can't be read now.";
    return;
  } finally {
    loading = false;
  }
  grown();
  if (!more) follow();
};

const follow = () => {
  const last = rows[rows.length - 1];
  if (last === undefined || last[2] === "job_sealed") return;
  const stream = new EventSource(`${box.dataset.follow}?after=${last[0]}`);
  stream.onmessage = (event) => {
    add(JSON.parse(event.data));
    grown();
    clearTimeout(follow.timer);
    follow.timer = setTimeout(() => htmx.trigger("#state", "refresh"), 300);
  };
  stream.addEventListener("over", () => stream.close());
  addEventListener("pagehide", () => stream.close(), { once: true });
};

let asked = false;
box.addEventListener("scroll", () => {
  if (!asked) requestAnimationFrame(() => { asked = false; draw(); });
  asked = true;
}, { passive: true });
addEventListener("resize", draw);
load();
