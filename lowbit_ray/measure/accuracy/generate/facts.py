"""The facts that the knowledge domain asks about: small tables of our own, and the calendar.

A fact is a subject, a true answer and a family of answers that wrong options are drawn from.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from lowbit_ray.measure.accuracy.generate.draft import words

__all__ = ["Fact", "facts"]

_ELEMENTS = (
    "hydrogen H,helium He,lithium Li,beryllium Be,boron B,carbon C,nitrogen N,oxygen O,fluorine F,"
    "neon Ne,sodium Na,magnesium Mg,aluminium Al,silicon Si,phosphorus P,sulfur S,chlorine Cl,argon Ar,"
    "potassium K,calcium Ca,scandium Sc,titanium Ti,vanadium V,chromium Cr,manganese Mn,iron Fe,"
    "cobalt Co,nickel Ni,copper Cu,zinc Zn,gallium Ga,germanium Ge,arsenic As,selenium Se,bromine Br,"
    "krypton Kr,rubidium Rb,strontium Sr,yttrium Y,zirconium Zr,niobium Nb,molybdenum Mo,technetium Tc,"
    "ruthenium Ru,rhodium Rh,palladium Pd,silver Ag,cadmium Cd,indium In,tin Sn,antimony Sb,tellurium Te,"
    "iodine I,xenon Xe"
)
_CAPITALS = (
    "France:Paris,Italy:Rome,Spain:Madrid,Germany:Berlin,Japan:Tokyo,China:Beijing,Russia:Moscow,"
    "Egypt:Cairo,Greece:Athens,Portugal:Lisbon,Austria:Vienna,Poland:Warsaw,Sweden:Stockholm,Norway:Oslo,"
    "Finland:Helsinki,Denmark:Copenhagen,Ireland:Dublin,Hungary:Budapest,Belgium:Brussels,"
    "the Netherlands:Amsterdam,Cuba:Havana,South Korea:Seoul,Thailand:Bangkok,Canada:Ottawa,"
    "Australia:Canberra,Argentina:Buenos Aires,Peru:Lima,Kenya:Nairobi,Iraq:Baghdad,Iran:Tehran,"
    "Turkey:Ankara,Ukraine:Kyiv,the Czech Republic:Prague,Romania:Bucharest,Bulgaria:Sofia,"
    "Serbia:Belgrade,Croatia:Zagreb,Slovenia:Ljubljana,Slovakia:Bratislava,Lithuania:Vilnius,Latvia:Riga,"
    "Estonia:Tallinn,Iceland:Reykjavik,Switzerland:Bern,Morocco:Rabat,Algeria:Algiers,Tunisia:Tunis,"
    "Libya:Tripoli,Ethiopia:Addis Ababa,Ghana:Accra,Nigeria:Abuja,Senegal:Dakar,Uganda:Kampala,"
    "Rwanda:Kigali,Zimbabwe:Harare,Zambia:Lusaka,Angola:Luanda,Mozambique:Maputo,Madagascar:Antananarivo,"
    "Namibia:Windhoek,India:New Delhi,Pakistan:Islamabad,Bangladesh:Dhaka,Nepal:Kathmandu,Vietnam:Hanoi,"
    "Laos:Vientiane,Cambodia:Phnom Penh,Indonesia:Jakarta,Malaysia:Kuala Lumpur,the Philippines:Manila,"
    "Mongolia:Ulaanbaatar,New Zealand:Wellington,Fiji:Suva,Chile:Santiago,Uruguay:Montevideo,"
    "Paraguay:Asuncion,Venezuela:Caracas,Colombia:Bogota,Ecuador:Quito,Jamaica:Kingston,"
    "Honduras:Tegucigalpa,Nicaragua:Managua,Georgia:Tbilisi,Armenia:Yerevan,Azerbaijan:Baku,"
    "Uzbekistan:Tashkent,Lebanon:Beirut,Syria:Damascus,Jordan:Amman,Saudi Arabia:Riyadh,Qatar:Doha,"
    "Oman:Muscat,Yemen:Sanaa,Albania:Tirana,Cyprus:Nicosia,Malta:Valletta"
)
_CONTINENTS = (
    "Europe:France Italy Spain Germany Norway Poland Greece Portugal Austria Hungary,"
    "Asia:Japan China India Thailand Vietnam Nepal Mongolia Iraq Laos Pakistan,"
    "Africa:Egypt Kenya Nigeria Ghana Morocco Ethiopia Angola Zambia Senegal Uganda,"
    "South America:Brazil Peru Chile Bolivia Colombia Uruguay Ecuador Paraguay Argentina Venezuela"
)
_OPPOSITES = (
    "hot:cold,big:small,up:down,day:night,fast:slow,happy:sad,old:young,true:false,wet:dry,high:low,"
    "open:closed,full:empty,hard:soft,rich:poor,early:late,strong:weak,left:right,clean:dirty,near:far,"
    "thick:thin,long:short,good:bad,love:hate,war:peace,win:lose,buy:sell,push:pull,inside:outside,"
    "black:white,north:south,east:west,first:last,more:less,start:end,above:below,always:never,"
    "sweet:sour,wide:narrow"
)
_YOUNG = (
    "dog:puppy,cat:kitten,cow:calf,horse:foal,sheep:lamb,bear:cub,duck:duckling,frog:tadpole,goat:kid,"
    "deer:fawn"
)
_WORDS = (
    "apple bread cloud dance eagle flower garden house island jungle kitten lemon mountain night orange "
    "paper queen river summer table uncle village window yellow zebra animal bridge candle doctor engine "
    "forest guitar hammer insect jacket knife letter mirror needle ocean pencil rabbit school tiger "
    "valley winter album basket camera desert elbow finger glass honey iron jewel king ladder market "
    "nurse onion pocket quilt ribbon salt tower umbrella violin wagon yard arrow banana carpet dragon "
    "earth fence gold hotel ink judge kettle lion melon nest olive piano road silver train uniform vase "
    "water anchor button castle drum egg farm grape harbor ice jar lake meadow nail owl plate rain star "
    "tent wall baker circle donkey family ghost helmet lamp magnet novel parrot rocket shadow ticket "
    "vessel whale artist beach copper dinner energy feather gate hill journey lawyer museum nephew "
    "office palace rope sugar temple virus wolf actor butter clock diamond evening fire grass heart "
    "infant machine number oxygen planet root spoon throat voice wheel angel bottle coffee desk error "
    "fork guest horn image milk nose oven pepper ring snow tooth"
)
_PLANETS = "Mercury,Venus,Earth,Mars,Jupiter,Saturn,Uranus,Neptune"
_ORDINALS = "first,second,third,fourth,fifth,sixth,seventh,eighth"
_POLYGONS = "triangle:3,square:4,pentagon:5,hexagon:6,heptagon:7,octagon:8,nonagon:9,decagon:10,dodecagon:12"
_FUNCTIONS = (
    "math:gcd isclose factorial comb,random:shuffle randint,itertools:chain product,"
    "functools:lru_cache partial,heapq:heappush heappop,bisect:insort,shutil:rmtree copytree which,"
    "textwrap:dedent shorten,hashlib:sha256 md5,statistics:median stdev,operator:itemgetter methodcaller,"
    "copy:deepcopy,glob:iglob,contextlib:suppress redirect_stdout,tempfile:mkdtemp,collections:ChainMap,"
    "struct:calcsize,asyncio:gather wait_for,ast:literal_eval,base64:b64encode,difflib:get_close_matches,"
    "html:unescape,inspect:signature,secrets:token_hex,zlib:crc32,locale:setlocale,getpass:getuser,"
    "fnmatch:fnmatchcase"
)


@dataclass(frozen=True, slots=True)
class Fact:
    """One question with its answer."""

    name: str
    """Unique; the cluster of items about it."""
    question: str
    answer: str
    family: tuple[str, ...]
    """Answers of the same kind, from which wrong options are drawn; holds no second right answer."""


@cache
def facts(level: int) -> tuple[tuple[Fact, ...], ...]:
    """All facts of a difficulty by kind, in a fixed order."""
    kinds: tuple[tuple[Callable[[], list[Fact]], ...], ...] = (
        (_well_known_capitals, _opposites, _first_letters),
        (_other_capitals, _young, _weekdays, _next, _polygons, _continents, _symbols, _months, _planets),
        (_countries, _elements, _days_between, _modules, _atomic_numbers),
    )
    return tuple(tuple(kind()) for kind in kinds[level])


def _pairs(table: str, separator: str = ":") -> list[tuple[str, str]]:
    return [(left, right) for left, _, right in (entry.partition(separator) for entry in table.split(","))]


def _table(kind: str, question: str, pairs: list[tuple[str, str]]) -> list[Fact]:
    """One fact a pair: the question holds the left side, the answer is the right one."""
    family = tuple(dict.fromkeys(right for _, right in pairs))
    return [
        Fact(f"{kind}-{index}", question.format(left), right, family)
        for index, (left, right) in enumerate(pairs)
    ]


def _capitals() -> list[Fact]:
    return _table("capital", "What is the capital of {}?", _pairs(_CAPITALS))


def _well_known_capitals() -> list[Fact]:
    return _capitals()[:30]


def _other_capitals() -> list[Fact]:
    return _capitals()[30:]


def _countries() -> list[Fact]:
    swapped = [(capital, country) for country, capital in _pairs(_CAPITALS)]
    return _table("country", "Which country has the capital {}?", swapped)


def _opposites() -> list[Fact]:
    return _table("opposite", "What is the opposite of {}?", _pairs(_OPPOSITES))


def _young() -> list[Fact]:
    return _table("young", "What is a young {} called?", _pairs(_YOUNG))


def _polygons() -> list[Fact]:
    return _table("polygon", "How many sides does a {} have?", _pairs(_POLYGONS))


def _weekdays() -> list[Fact]:
    days = list(calendar.day_name)
    after = [(f"after {day}", days[(index + 1) % 7]) for index, day in enumerate(days)]
    before = [(f"before {day}", days[(index - 1) % 7]) for index, day in enumerate(days)]
    return _table("weekday", "Which day comes right {}?", after + before)


def _next() -> list[Fact]:
    letters = _table(
        "letter", "Which letter comes right after {}?", list(pairwise("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
    )
    numbers = [(str(number), str(number + 1)) for number in range(1, 100)]
    return letters + _table("number", "Which number comes right after {}?", numbers)


def _first_letters() -> list[Fact]:
    pairs = [(word, word[0].upper()) for word in words(_WORDS)]
    return _table("first", 'What is the first letter of the word "{}"?', pairs)


def _continents() -> list[Fact]:
    pairs = [(country, place) for place, names in _pairs(_CONTINENTS) for country in names.split()]
    return _table("continent", "On which continent is {}?", pairs)


def _symbols() -> list[Fact]:
    return _table("symbol", "What is the chemical symbol of {}?", _pairs(_ELEMENTS, " "))


def _elements() -> list[Fact]:
    swapped = [(symbol, name) for name, symbol in _pairs(_ELEMENTS, " ")]
    return _table("element", "Which chemical element has the symbol {}?", swapped)


def _atomic_numbers() -> list[Fact]:
    names = [name for name, _ in _pairs(_ELEMENTS, " ")]
    return _table("atom", "What is the atomic number of {}?", [(n, str(i)) for i, n in enumerate(names, 1)])


def _months() -> list[Fact]:
    months = list(calendar.month_name)[1:]
    after = [(month, months[(index + 1) % 12]) for index, month in enumerate(months)]
    numbers = [(_ORDINALS.split(",")[index], month) for index, month in enumerate(months[:8])]
    return [
        *_table("month", "Which month comes right after {}?", after),
        *_table("month-number", "Which month is the {} of the year?", numbers),
    ]


def _planets() -> list[Fact]:
    pairs = list(zip(_ORDINALS.split(","), _PLANETS.split(","), strict=True))
    return _table("planet", "Which planet is the {} from the Sun?", pairs)


def _days_between() -> list[Fact]:
    days = list(calendar.day_name)
    pairs = [
        (f"{gap} days after {day}", days[(index + gap) % 7])
        for index, day in enumerate(days)
        for gap in (3, 9, 10, 16, 25, 100)
    ]
    return _table("weekday-later", "Which weekday is {}?", pairs)


def _modules() -> list[Fact]:
    pairs = [(name, module) for module, names in _pairs(_FUNCTIONS) for name in names.split()]
    return _table("module", "Which module of Python's standard library has the function {}?", pairs)
