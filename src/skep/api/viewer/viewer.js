// Shows the screen of one guest. The parameter `path` of the page's address says where its line is: a path of the same
// server, with a token that is good once.
import RFB from "./core/rfb.js";

const state = document.getElementById("state");
const keys = document.getElementById("keys");
const path = new URLSearchParams(window.location.search).get("path") ?? "";

function show(path) {
  const line = new URL(`../../${path}`, window.location.href);
  line.protocol = window.location.protocol === "https:" ? "wss:" : "ws:";
  // A used token in the address would only mislead who copies it.
  window.history.replaceState(null, "", window.location.pathname);
  const screen = new RFB(document.getElementById("screen"), line.href, { wsProtocols: ["binary"] });
  screen.scaleViewport = true;
  screen.addEventListener("connect", () => {
    state.textContent = "Connected";
    screen.focus();
    keys.disabled = false;
  });
  screen.addEventListener("disconnect", (event) => {
    state.textContent = event.detail.clean ? "The console has ended" : "The console cannot be reached";
    keys.disabled = true;
  });
  keys.addEventListener("click", () => screen.sendCtrlAltDel());
}

if (path.startsWith("consoles/vnc?token=")) {
  show(path);
} else {
  state.textContent = "This address is used, or none of a console: ask for a new one";
}
