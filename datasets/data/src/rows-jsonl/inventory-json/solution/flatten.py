"""Writes /workspace/stock.csv from /workspace/inventory.json."""

import csv
import json


def items(bins):
    """Every item, a bin's own before those of the bins inside it."""
    for bin_ in bins:
        yield from bin_.get("items", [])
        yield from items(bin_.get("bins", []))


with open("/workspace/inventory.json", encoding="utf-8") as source:
    inventory = json.load(source)

names = {}
counts = {}  # sku -> warehouse id -> count
for warehouse in inventory["warehouses"]:
    for item in items(warehouse["bins"]):
        sku = item["sku"]
        names[sku] = names.get(sku) or item["name"]
        by_warehouse = counts.setdefault(sku, {})
        by_warehouse[warehouse["id"]] = by_warehouse.get(warehouse["id"], 0) + item["count"]

rows = []
for sku, by_warehouse in counts.items():
    total = sum(by_warehouse.values())
    if total:
        stocked = sorted(warehouse for warehouse, count in by_warehouse.items() if count > 0)
        rows.append((sku, names[sku], total, ";".join(stocked)))

with open("/workspace/stock.csv", "w", encoding="utf-8", newline="") as target:
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(["sku", "name", "total", "warehouses"])
    writer.writerows(sorted(rows, key=lambda row: (-row[2], row[0])))
