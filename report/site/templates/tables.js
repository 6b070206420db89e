// Tables sort by a click on a heading, and show the rows that hold every word of their filter. Of a table that goes on
// over several pages both see one page only, which the line of the filter says.
const FEW_ROWS = 8;

for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, body = head.closest("table").tBodies[0];
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const numeric = head.classList.contains("n");
    const key = row => { const cell = row.cells[head.cellIndex]; return numeric ? cell.dataset.v : cell.textContent; };
    const order = (a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
      const less = numeric ? Number(x) - Number(y) || 0 : x.localeCompare(y, undefined, { numeric: true });
      return down ? -less : less;
    };
    body.append(...[...body.rows].sort(order));
  });
}

for (const scroll of document.querySelectorAll(".scroll")) {
  const rows = [...scroll.querySelector("tbody").rows];
  if (rows.length <= FEW_ROWS) continue;
  const line = document.createElement("label"), input = document.createElement("input"), count = document.createElement("span");
  line.className = "filter";
  input.type = "search";
  input.placeholder = "words in a row";
  line.append("Filter ", input, count);
  scroll.before(line);
  const whole = scroll.dataset.rows;
  if (whole) {
    const data = scroll.previousElementSibling.previousElementSibling.querySelector('a[href$=".csv"]').cloneNode(true);
    line.append(`Filter and order are of this page; the whole table has ${whole} rows: `, data);
  }
  const texts = rows.map(row => row.textContent.toLowerCase());
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/);
    rows.forEach((row, place) => { row.hidden = !words.every(word => texts[place].includes(word)); });
    const shown = rows.filter(row => !row.hidden).length.toLocaleString("en");
    count.textContent = `${shown} of ${rows.length.toLocaleString("en")} rows${whole ? " on this page." : ""}`;
  });
}
