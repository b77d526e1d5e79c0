// Keeps the page of an unfinished submission up to date: each event of its stream fetches the part that changed,
// rendered by the server. Without this script the page is the same, and stands still.
"use strict";

const region = document.getElementById("live");
const told = document.getElementById("told");
let asked = false;
let again = false;

async function refresh() {
  if (asked) {
    again = true; // one fetch at a time; what came meanwhile is in the next one
    return;
  }
  asked = true;
  try {
    const answer = await fetch(region.dataset.part, { headers: { Accept: "text/html" } });
    if (answer.redirected) {
      location.reload();
      return;
    }
    if (answer.ok) {
      const before = region.querySelector("h2, strong")?.textContent;
      const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
      region.replaceChildren(...parsed.body.childNodes);
      const now = region.querySelector("strong, h2")?.textContent ?? "";
      if (now !== before && told.textContent !== now) {
        told.textContent = now; // for who listens: the step alone, not every number
      }
    }
  } catch {
    // the service is away for a moment: the stream connects again by itself
  } finally {
    asked = false;
  }
  if (again) {
    again = false;
    setTimeout(refresh, 500);
  }
}

function showLog(log) {
  const list = document.getElementById("log-list");
  if (!list || list.querySelector(`[data-log="${CSS.escape(log.name)}"]`)) {
    return;
  }
  list.querySelector("[data-empty]")?.remove();
  const details = document.createElement("details");
  details.dataset.log = log.name;
  details.open = true;
  const summary = document.createElement("summary");
  summary.textContent = log.title;
  const text = document.createElement("pre");
  text.className = "log";
  text.tabIndex = 0;
  text.textContent = log.text;
  details.append(summary, text);
  list.append(details);
}

if (region) {
  const events = new EventSource(region.dataset.events);
  events.addEventListener("state", refresh);
  events.addEventListener("log", (event) => showLog(JSON.parse(event.data)));
  events.addEventListener("end", () => {
    events.close();
    location.reload();
  });
}
