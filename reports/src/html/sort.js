for (const table of document.querySelectorAll("table.sort")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    const sort = () => {
      const down = head.ariaSort === "ascending" ? -1 : 1;
      heads.forEach((other) => { other.ariaSort = null; });
      head.ariaSort = down > 0 ? "ascending" : "descending";
      const value = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
      const order = (a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === "" || y === "") return (x === "") - (y === "");
        const difference = Number(x) - Number(y);
        return down * (Number.isNaN(difference) ? x.localeCompare(y, "en", { numeric: true }) : difference);
      };
      body.append(...[...body.rows].sort(order));
    };
    head.tabIndex = 0;
    head.onclick = sort;
    head.onkeydown = (event) => { if (event.key === "Enter") sort(); };
  });
}
const open = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const box = target && target.closest("details");
  if (box && !box.open) { box.open = true; target.scrollIntoView(); }
};
addEventListener("hashchange", open);
open();
