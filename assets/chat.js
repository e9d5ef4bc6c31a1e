// A conversation as rows of role and text. The component's value is a JSON list of {role, content}.

const rowsPlace = element.querySelector(".li-chat-rows");
const ROLES = ["system", "user", "assistant"];
let written = null;

function write() {
  const messages = [...rowsPlace.children].map((row) => ({
    role: row.querySelector("select").value, content: row.querySelector("textarea").value,
  }));
  written = JSON.stringify(messages);
  props.value = written;
}

function grow(area) {
  area.style.height = "auto";
  area.style.height = area.scrollHeight + 2 + "px";
}

function chatRow(message) {
  const row = document.createElement("div");
  row.className = "li-chat-row";
  const role = document.createElement("select");
  role.setAttribute("aria-label", "Role");
  for (const name of new Set([...ROLES, message.role])) role.append(new Option(name, name));
  role.value = message.role;
  const area = document.createElement("textarea");
  area.rows = 1;
  area.value = message.content;
  area.setAttribute("aria-label", "Message");
  area.placeholder = "Message";
  const remove = document.createElement("button");
  remove.type = "button";
  remove.textContent = "×";
  remove.setAttribute("aria-label", "Remove message");
  remove.addEventListener("click", () => { row.remove(); write(); });
  role.addEventListener("change", write);
  area.addEventListener("input", () => { grow(area); write(); });
  row.append(role, area, remove);
  return row;
}

function readRows() {
  if (props.value === written) return; // our own writing comes back to us
  written = props.value;
  rowsPlace.replaceChildren(...JSON.parse(props.value || "[]").map(chatRow));
  requestAnimationFrame(() => rowsPlace.querySelectorAll("textarea").forEach(grow));
}

element.querySelector(".li-chat-add").addEventListener("click", () => {
  const last = rowsPlace.lastElementChild?.querySelector("select").value;
  const row = chatRow({ role: last === "user" ? "assistant" : "user", content: "" });
  rowsPlace.append(row);
  row.querySelector("textarea").focus();
  write();
});
watch("value", readRows);
readRows();
