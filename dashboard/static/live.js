"use strict";
// Changes the page to what the server has now. Without JavaScript the page is the same, and stays.

const main = document.getElementById("content");
const connection = document.getElementById("connection");
const notice = document.getElementById("notice");
const filter = document.getElementById("filter");
const INTERVAL = 2000, SILENCE = 10000, TYPING = 250;
let asking = new AbortController(), timer = null, typing = null, etag = "", last = [];

function say(text, kind, why = []) {
  // Screen readers say what is written, also if it was there.
  if (connection.textContent !== text) connection.textContent = text;
  connection.className = kind;
  main.classList.toggle("stale", kind !== "good");
  notice.replaceChildren(...why);
  notice.hidden = !why.length;
}

// In place: what has the focus, is open or scrolled stays so.
function morph(old, next) {
  const fresh = [...next.childNodes];
  fresh.forEach((node, index) => {
    let at = old.childNodes[index];
    if (node.id && (!at || at.id !== node.id)) {
      const same = document.getElementById(node.id);
      if (same && same.parentNode === old) at = old.insertBefore(same, at);
    }
    if (!at || at.nodeName !== node.nodeName || (at.id || "") !== (node.id || "")) old.insertBefore(node, at || null);
    else if (at.isEqualNode(node)) return;
    else if (at.nodeType !== Node.ELEMENT_NODE) at.data = node.data;
    // A person who is about to confirm decides on what was shown when the form was opened.
    else if (!at.matches(":popover-open")) {
      for (const { name } of [...at.attributes]) if (!node.hasAttribute(name)) at.removeAttribute(name);
      for (const { name, value } of node.attributes) if (at.getAttribute(name) !== value) at.setAttribute(name, value);
      morph(at, node);
    }
  });
  while (old.childNodes.length > fresh.length) old.lastChild.remove();
}

function show(html) {
  const next = new DOMParser().parseFromString(html, "text/html").body;
  const trouble = next.querySelector("#trouble");
  // What was read last is better than nothing.
  const keeps = trouble && !main.querySelector("#trouble");
  if (!keeps) morph(main, next);
  last = trouble ? ["▲ Not live", "warning", keeps ? [trouble] : []] : ["● Live", "good"];
  say(...last);
}

async function poll() {
  clearTimeout(timer);
  asking.abort();
  const mine = (asking = new AbortController());
  setTimeout(() => mine.abort(), SILENCE);
  try {
    const headers = etag ? { "If-None-Match": etag } : {};
    const answer = await fetch(document.body.dataset.live + location.search, { headers, signal: mine.signal });
    if (answer.status === 304) say(...last);
    else if (answer.ok) (etag = answer.headers.get("ETag")), show(await answer.text());
    else throw new Error(answer.status);
  } catch {
    if (mine === asking) say(`▲ Connection lost; ${document.body.dataset.lost}`, "warning");
  }
  if (mine === asking && !document.hidden) timer = setTimeout(poll, INTERVAL);
}

function refilter() {
  clearTimeout(typing);
  const words = filter.value.trim();
  history.replaceState(null, "", words ? `?${new URLSearchParams({ q: words })}` : location.pathname);
  etag = "";
  poll();
}

filter.addEventListener("input", () => (clearTimeout(typing), (typing = setTimeout(refilter, TYPING))));
filter.form.addEventListener("submit", (event) => (event.preventDefault(), refilter()));
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  filter.focus();
});

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : poll()));
if (!document.hidden) poll();
