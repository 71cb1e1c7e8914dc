#!/bin/sh
set -eu
python3 - <<'PYTHON'
import csv
import json
from decimal import Decimal

with open("/workspace/invoices.csv", newline="") as source:
    last = {row["invoice"]: row for row in csv.DictReader(source)}

totals = {}
for row in last.values():
    if row["status"].lower() == "paid":
        entry = totals.setdefault(row["customer"].strip(), {"invoices": 0, "total_cents": 0})
        entry["invoices"] += 1
        entry["total_cents"] += int(Decimal(row["amount"].replace(",", "")) * 100)

with open("/workspace/totals.json", "w") as target:
    json.dump(totals, target, indent=2)
PYTHON
