"""What is known of the methods, measured on synthetic tensors by `pisa quality`.

usage: facts_test.py PISA PISAC SPECS, in an empty folder of its own.
"""

import json
import subprocess
import sys

TAILS = ("keep_or_drop", "taylor0", "hybrid", "dense", "hybrid_second", "taylor1")
SPREADS, BETWEENS = (0.25, 0.5, 1.0, 2.0), (0.5, 1.5)


def near(got, wanted, share, what):
    assert abs(got - wanted) <= share * wanted, f"{what} is {got}, expected {wanted} within {100 * share} %"


def measure(pisa, packs):
    """Records by (spread, between, spec, density)."""
    command = [pisa, "quality", *packs, "--synthetic", "std=" + ",".join(map(str, SPREADS)), "--between",
               ",".join(map(str, BETWEENS)), "--tokens", "2048", "--densities", "0.125,0.5", "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    return {(r["asked"]["inside_std"], r["asked"]["between_std"], r["spec"], r["density"]): r for r in records}


def main():
    pisa, pisac, specs = sys.argv[1:]
    for spec in TAILS:
        subprocess.run([pisac, "build", f"{specs}/{spec}.pisa", "--no-ptxas", "-o", f"{spec}.pack"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    r = measure(pisa, [f"{spec}.pack" for spec in TAILS])
    for spread in SPREADS:
        for between in BETWEENS:
            case = f"spread {spread}, {between} between"
            dense = r[spread, between, "dense", None]
            near(dense["inside_std"], spread, 0.03, f"{case}: spread inside blocks")
            # 32 sampled centres, and the means of 64 keys sway by an eighth of the spread inside
            near(dense["between_std"], (between**2 + spread**2 / 64) ** 0.5, 0.1, f"{case}: spread between blocks")
            near(dense["error"], dense["rounding"], 0.02, f"{case}: error of dense")
            for density in (0.125, 0.5):
                drop, zero, hybrid = (r[spread, between, spec, density] for spec in TAILS[:3])
                assert zero["error"] < drop["error"], f"{case}, density {density}: order 0 is worse than dropping"
                if spread <= 0.5:
                    assert hybrid["error"] < zero["error"], f"{case}, density {density}: hybrid is worse than order 0"
                second, one = (r[spread, between, spec, density] for spec in TAILS[4:])
                if spread >= 0.5:
                    assert second["error"] < hybrid["error"], f"{case}, density {density}: second order is worse"
                assert one["error"] < hybrid["error"], f"{case}, density {density}: order 1 is worse than hybrid"
                assert one["cost"] > 1, f"{case}: order 1 reads every block"
                assert drop["mass"] == zero["mass"] == hybrid["mass"], f"{case}: lists differ"
                assert drop["cost"] < zero["cost"] < hybrid["cost"] < 1, f"{case}: costs"
            less, more = r[spread, between, "keep_or_drop", 0.125], r[spread, between, "keep_or_drop", 0.5]
            assert more["error"] < less["error"] and more["mass"] > less["mass"], f"{case}: reading more does not help"
    # What makes the expansion fail.
    for between in BETWEENS:
        errors = [r[spread, between, "hybrid", 0.125]["error"] for spread in SPREADS]
        assert errors == sorted(errors) and errors[-1] > 10 * errors[0], f"hybrid by spread: {errors}"


main()
