// Acts that ask for a reason open as a dialog over the page. The form in it is an ordinary one; what
// cannot be opened so is followed as a link, to the same form on a page of its own.

async function open(link) {
  const dialog = document.createElement("dialog");
  dialog.className = "act-dialog";
  dialog.setAttribute("aria-labelledby", "sheet-title");
  dialog.addEventListener("close", () => {
    dialog.remove();
    link.focus();
  });
  document.body.append(dialog);
  await window.htmx.ajax("GET", link.href, { source: dialog, target: dialog, swap: "innerMorph" });
  if (!dialog.querySelector("#sheet-title")) throw new Error("no sheet came");
  dialog.showModal();
}

export function startSheets() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-sheet]");
    if (link && window.htmx && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      open(link).catch(() => location.assign(link.href));
    }
    const closing = event.target.closest("[data-close-sheet]");
    if (closing?.closest("dialog")) {
      event.preventDefault();
      closing.closest("dialog").close();
    }
  });
}
