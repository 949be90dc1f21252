"use strict";
// Replaces the sections of the page that the server sends again. Without JavaScript the page is the same, and stays.

const main = document.getElementById("content");
const connection = document.getElementById("connection");
const RETRY = 10000;
let source = null;

function say(text, kind) {
  if (connection.textContent !== text) {
    connection.textContent = text;
    connection.className = kind;
  }
}

function keep(old, next) {
  // What the user opened or closed stays so.
  for (const each of old.querySelectorAll("details[id]")) {
    const same = next.querySelector("#" + CSS.escape(each.id));
    if (!same) continue;
    same.open = each.open;
    // A person who is about to confirm decides on what was shown when the form was opened.
    const shown = each.open && each.querySelector(":scope > form > input[name=shown]");
    const fresh = shown && same.querySelector(":scope > form > input[name=shown]");
    if (fresh) fresh.value = shown.value;
  }
}

function swap(html) {
  const page = new DOMParser().parseFromString(html, "text/html").body;
  keep(main, page);
  const focus = place();
  const next = [...page.children];
  next.forEach((each, index) => {
    const old = document.getElementById(each.id);
    if (old && old.parentNode === main && old.outerHTML === each.outerHTML) return main.insertBefore(old, main.children[index] || null);
    if (old && old.parentNode === main) old.remove();
    main.insertBefore(document.adoptNode(each), main.children[index] || null);
  });
  while (main.children.length > next.length) main.lastElementChild.remove();
  if (focus && document.activeElement === document.body) restore(focus);
}

function place() {
  // Where the focus is: the innermost part with a name, and which of its links and buttons.
  const section = document.activeElement.closest("main [id]");
  return section && { id: section.id, index: reachable(section).indexOf(document.activeElement) };
}

function restore(focus) {
  const section = document.getElementById(focus.id);
  const target = section && (reachable(section)[focus.index] || section);
  if (target) target.focus({ preventScroll: true });
}

function reachable(section) {
  return [...section.querySelectorAll("a, button, summary")];
}

function open() {
  source = new EventSource(document.body.dataset.live);
  source.addEventListener("open", () => say("● Live", "good"));
  source.addEventListener("page", (event) => swap(event.data));
  source.addEventListener("error", lost);
}

function lost(event) {
  say(`▲ Connection lost; ${document.body.dataset.lost}`, "warning");
  // After an answer that is no stream, such as a proxy's own, the browser does not try again.
  const failed = event.target;
  if (failed.readyState === EventSource.CLOSED) setTimeout(() => failed === source && !document.hidden && open(), RETRY);
}

// A browser has few connections to one server: only the page that is seen takes one.
document.addEventListener("visibilitychange", () => {
  if (source) source.close();
  if (!document.hidden) open();
});
if (!document.hidden) open();
