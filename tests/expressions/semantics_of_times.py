"""Examples of the functions of timestamps, dates and times of day."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from zoneinfo import ZoneInfo

import pyarrow as pa

from tests.expressions.cases import clock, ints, of, times

HAVANA = ZoneInfo("America/Havana")
BEFORE = datetime(1969, 12, 31, 23, 59, 59, 999_999)
LEAP = datetime(2024, 2, 29, 12, 30, 45, 123_456)
EARLY = datetime(1, 1, 1)
IN_MONROVIA = (  # 44 minutes and 30 seconds behind UTC until 1972
    datetime(1960, 1, 1, tzinfo=UTC),
    datetime(1960, 1, 1, 0, 0, 59, 250_000, tzinfo=UTC),
    None,
)

TIME = [
    *of(
        "dt.year",
        ("col('t').dt.year()", {"t": times(BEFORE, LEAP, EARLY, None)}, [1969, 2024, 1, None]),
        ("col('t').dt.month()", {"t": times(BEFORE, LEAP)}, [12, 2]),
        ("col('t').dt.day()", {"t": times(BEFORE, LEAP, datetime(1582, 10, 10))}, [31, 29, 10]),
        ("col('d').dt.year()", {"d": ("date32", [date(1969, 12, 31), None])}, [1969, None]),
        ("col('t').dt.day()", {"t": times(*clock("2024-02-29 23:30"), zone="America/New_York")}, [29]),
    ),
    *of(
        "dt.hour",
        ("col('t').dt.hour()", {"t": times(BEFORE, LEAP, None)}, [23, 12, None]),
        ("col('t').dt.minute()", {"t": times(BEFORE, LEAP)}, [59, 30]),
        ("col('t').dt.second()", {"t": times(BEFORE, LEAP)}, [59, 45]),
        (
            "col('t').dt.hour()",
            {"t": times(*clock("2024-11-03 01:30", "2024-11-03 01:30*"), zone="America/New_York")},
            [1, 1],
        ),
        ("col('t').dt.hour()", {"t": times(datetime(2024, 7, 1, 20, tzinfo=UTC), zone="Asia/Kolkata")}, [1]),
        ("col('t').dt.minute()", {"t": (pa.time64("us"), [time(23, 59, 1)])}, [59]),
        ("col('t').dt.hour()", {"t": times(*IN_MONROVIA, zone="Africa/Monrovia")}, [23, 23, None]),
        ("col('t').dt.minute()", {"t": times(*IN_MONROVIA, zone="Africa/Monrovia")}, [15, 16, None]),
        ("col('t').dt.second()", {"t": times(*IN_MONROVIA, zone="Africa/Monrovia")}, [30, 29, None]),
    ),
    *of(
        "dt.millisecond",
        ("col('t').dt.millisecond()", {"t": times(BEFORE, LEAP, None)}, [999, 123, None]),
        ("col('t').dt.microsecond()", {"t": times(BEFORE, LEAP, None)}, [999_999, 123_456, None]),
        ("col('t').dt.microsecond()", {"t": times(*IN_MONROVIA, zone="Africa/Monrovia")}, [0, 250_000, None]),
        ("col('t').dt.microsecond()", {"t": times(LEAP.replace(microsecond=123_000), unit="ms")}, [123_000]),
    ),
    *of(
        "dt.weekday",
        (
            "col('t').dt.weekday()",
            {"t": times(datetime(1970, 1, 1), BEFORE, datetime(2024, 3, 3), None)},
            [4, 3, 7, None],
        ),
    ),
    *of(
        "dt.ordinal_day",
        ("col('t').dt.ordinal_day()", {"t": times(LEAP, BEFORE, datetime(2024, 12, 31))}, [60, 365, 366]),
    ),
    *of(
        "dt.date",
        ("col('t').dt.date()", {"t": times(BEFORE, LEAP, None)}, [date(1969, 12, 31), date(2024, 2, 29), None]),
        (
            "col('t').dt.date()",
            {"t": times(datetime(2024, 3, 1, 1, tzinfo=UTC), zone="America/New_York")},
            [date(2024, 2, 29)],
        ),
    ),
    *of(
        "from_epoch",
        (
            "from_epoch('a', 's')",
            {"a": ints(1_709_209_845, -1, None)},
            [LEAP.replace(microsecond=0, tzinfo=UTC), BEFORE.replace(microsecond=0, tzinfo=UTC), None],
        ),
        ("from_epoch(col('a') - 1, 'ms')", {"a": ints(0)}, [BEFORE.replace(microsecond=999_000, tzinfo=UTC)]),
        ("from_epoch('a', 'us')", {"a": ("uint32", [0, None])}, [datetime(1970, 1, 1, tzinfo=UTC), None]),
        ("from_epoch('a', 's') < from_epoch('b', 'us')", {"a": ints(1), "b": ints(1_000_001)}, [True]),
        ("from_epoch('a', 'us')", {"a": ("uint64", [2**63])}, OverflowError),
    ),
    *of(
        "dt.strftime",
        (
            "col('t').dt.strftime('%Y-%m-%d %H:%M:%S.%f')",
            {"t": times(BEFORE, LEAP, EARLY, None, datetime(9999, 12, 31, 23))},
            [
                "1969-12-31 23:59:59.999999",
                "2024-02-29 12:30:45.123456",
                "0001-01-01 00:00:00.000000",
                None,
                "9999-12-31 23:00:00.000000",
            ],
        ),
        (
            "col('t').dt.strftime('%y %j %I %u %w %G-%V %U %W')",
            {"t": times(datetime(2021, 1, 3), datetime(2008, 12, 29, 13), datetime(2000, 1, 1, 12))},
            ["21 003 12 7 0 2020-53 01 00", "08 364 01 1 1 2009-01 52 52", "00 001 12 6 6 1999-52 00 00"],
        ),
        ("col('t').dt.strftime('100%% %d/%m, né\\n')", {"t": times(LEAP, None)}, ["100% 29/02, né\n", None]),
        (
            "col('t').dt.strftime('%a %A %b %B %p|%c|%x %X|%z')",
            {"t": times(LEAP, datetime(2021, 5, 3), None)},
            [
                "Thu Thursday Feb February PM|Thu Feb 29 12:30:45 2024|02/29/24 12:30:45|",
                "Mon Monday May May AM|Mon May  3 00:00:00 2021|05/03/21 00:00:00|",
                None,
            ],
        ),
        ("col('t').dt.strftime('%z')", {"t": times(LEAP, None)}, ["", None]),
        ("col('d').dt.strftime('%x%z')", {"d": ("date32", [date(1969, 12, 31), None])}, ["12/31/69", None]),
        (
            "col('t').dt.strftime('%H:%M %z')",
            {"t": times(*clock("2024-11-03 01:30", "2024-11-03 01:30*", "2024-03-10 03:00"), zone="America/New_York")},
            ["01:30 -0400", "01:30 -0500", "03:00 -0400"],
        ),
        (
            "col('t').dt.strftime('%z')",
            {"t": times(*IN_MONROVIA, zone="Africa/Monrovia")},
            ["-004430", "-004430", None],
        ),
        ("col('t').dt.strftime('plain')", {"t": times(LEAP, None)}, ["plain", None]),
        (
            "col('d').dt.strftime('%d.%m.%Y %H:%M')",
            {"d": ("date32", [date(1969, 12, 31), None])},
            ["31.12.1969 00:00", None],
        ),
        ("col('d').dt.strftime('%Y%j')", {"d": ("date64", [date(1582, 10, 10)])}, ["1582283"]),
        (
            "col('t').dt.strftime('%d %H:%M')",
            {"t": times(*clock("2024-11-03 01:30", "2024-11-03 01:30*", "2024-03-10 03:00"), zone="America/New_York")},
            ["03 01:30", "03 01:30", "10 03:00"],
        ),
        (
            "col('t').dt.strftime('%H:%M:%S')",
            {"t": times(*IN_MONROVIA, zone="Africa/Monrovia")},
            ["23:15:30", "23:16:29", None],
        ),
        ("col('t').dt.strftime('%Y')", {"t": (pa.timestamp("us"), [253_402_300_800_000_000])}, OverflowError),
        ("col('t').dt.strftime('%Y')", {"t": (pa.timestamp("s"), [-62_135_596_801])}, OverflowError),
        (
            "when(col('a') < 10**9).then(col('a').cast('timestamp[s]').dt.strftime('%Y'))",
            {"a": ints(0, 10**12)},
            ["1970", None],
        ),
    ),
    *of(
        "dt.localize",
        (
            "col('t').dt.localize('America/New_York')",
            {"t": times(datetime(2024, 7, 1, 12), None, datetime(1960, 1, 1))},
            [*clock("2024-07-01 12:00"), None, *clock("1960-01-01 00:00")],
        ),
        (
            "col('t').dt.localize('America/New_York', ambiguous='earlier', missing='earlier')",
            {"t": times(datetime(2024, 11, 3, 1, 30), datetime(2024, 3, 10, 2, 30))},
            [*clock("2024-11-03 01:30"), datetime(2024, 3, 10, 6, 59, 59, 999_999, tzinfo=UTC)],
        ),
        (
            "col('t').dt.localize('America/New_York', ambiguous='later', missing='earlier')",
            {"t": times(datetime(2024, 11, 3, 1, 30), datetime(2024, 3, 10, 2, 30), unit="s")},
            [*clock("2024-11-03 01:30*"), datetime(2024, 3, 10, 6, 59, 59, tzinfo=UTC)],
        ),
        (
            "col('t').dt.localize('America/New_York', 'null', 'later')",
            {"t": times(datetime(2024, 11, 3, 1, 30), datetime(2024, 3, 10, 2, 30))},
            [None, *clock("2024-03-10 03:00")],
        ),
        (
            "col('t').dt.localize('America/New_York', missing='null')",
            {"t": times(datetime(2024, 11, 3, 2), datetime(2024, 3, 10, 2, 30))},
            [*clock("2024-11-03 02:00"), None],
        ),
        (
            "col('t').dt.localize('America/New_York', ambiguous='null')",
            {"t": times(datetime(2024, 11, 3, 1, 30), datetime(2024, 3, 10, 3), unit="ms")},
            [None, *clock("2024-03-10 03:00")],
        ),
        (
            "col('t').dt.localize('Africa/Monrovia', missing='later')",  # 44 minutes and 30 seconds were left out
            {"t": times(datetime(1972, 1, 7, 0, 44, 29), datetime(1972, 1, 7, 0, 44, 30), datetime(1960, 1, 1))},
            [
                datetime(1972, 1, 7, 0, 44, 30, tzinfo=UTC),
                datetime(1972, 1, 7, 0, 44, 30, tzinfo=UTC),
                datetime(1960, 1, 1, 0, 44, 30, tzinfo=UTC),
            ],
        ),
        (
            "col('t').dt.localize('UTC')",
            {"t": times(BEFORE, None)},
            [BEFORE.replace(tzinfo=UTC), None],
        ),
        (
            "when(col('t') < datetime.datetime(2024, 5, 1)).then(col('t').dt.localize('America/New_York'))",
            {"t": times(datetime(2024, 4, 1), datetime(2024, 11, 3, 1, 30))},
            [*clock("2024-04-01 00:00"), None],
        ),
        (
            "col('t').dt.localize('America/New_York').dt.hour()",
            {"t": times(datetime(2024, 7, 1, 12), None)},
            [12, None],
        ),
        ("col('t').dt.localize('America/New_York')", {"t": times(datetime(2024, 11, 3, 1, 30))}, ValueError),
        ("col('t').dt.localize('America/New_York', 'later')", {"t": times(datetime(2024, 3, 10, 2, 30))}, ValueError),
        (
            "col('t').dt.localize('America/New_York', 'raise', 'null')",
            {"t": times(datetime(2024, 11, 3, 1, 30))},
            ValueError,
        ),
        (
            "col('t').dt.localize('America/New_York', 'null', 'raise')",
            {"t": times(datetime(2024, 3, 10, 2, 30))},
            ValueError,
        ),
    ),
    *of(
        "dt.truncate",
        (
            "col('t').dt.truncate('1h')",
            {"t": times(BEFORE, LEAP, None)},
            [datetime(1969, 12, 31, 23), datetime(2024, 2, 29, 12), None],
        ),
        ("col('t').dt.truncate('1d')", {"t": times(BEFORE, EARLY)}, [datetime(1969, 12, 31), EARLY]),
        (
            "col('t').dt.truncate('15min', offset='5min')",
            {"t": times(LEAP, datetime(2024, 2, 29, 0, 4))},
            [datetime(2024, 2, 29, 12, 20), datetime(2024, 2, 28, 23, 50)],
        ),
        (
            "col('t').dt.truncate('7d', offset='4d')",
            {"t": times(LEAP, datetime(1970, 1, 1))},
            [datetime(2024, 2, 26), datetime(1969, 12, 29)],
        ),
        (
            "col('d').dt.truncate('2d')",
            {"d": ("date32", [date(1970, 1, 2), date(1969, 12, 31)])},
            [date(1970, 1, 1), date(1969, 12, 30)],
        ),
        (
            "col('t').dt.truncate('1d')",
            {"t": times(*clock("2024-03-10 12:00", "2024-11-03 00:30", "2024-11-03 23:30"), zone="America/New_York")},
            clock("2024-03-10 00:00", "2024-11-03 00:00", "2024-11-03 00:00"),
        ),
        (
            "col('t').dt.truncate('1h')",
            {"t": times(*clock("2024-11-03 01:30", "2024-11-03 01:30*", "2024-11-03 02:30"), zone="America/New_York")},
            clock("2024-11-03 01:00", "2024-11-03 01:00*", "2024-11-03 02:00"),
        ),
        (
            "col('t').dt.truncate('1min')",
            {"t": times(*IN_MONROVIA, zone="Africa/Monrovia")},
            [datetime(1959, 12, 31, 23, 59, 30, tzinfo=UTC), datetime(1960, 1, 1, 0, 0, 30, tzinfo=UTC), None],
        ),
        (
            "col('t').dt.truncate('2h')",
            {"t": times(*clock("2024-03-10 01:30", "2024-03-10 03:30", "2024-11-03 01:30*"), zone="America/New_York")},
            clock("2024-03-10 00:00", "2024-03-10 03:00", "2024-11-03 00:00"),
        ),
        (
            "col('t').dt.truncate('1d')",
            {
                "t": times(
                    *clock("2018-11-04 00:30", "2018-11-04 00:30*", "2018-11-05 00:00", zone=HAVANA),
                    zone="America/Havana",
                )
            },
            clock("2018-11-04 00:00", "2018-11-04 00:00", "2018-11-05 00:00", zone=HAVANA),
        ),
        (
            "col('t').dt.truncate('1h', offset='-30min')",
            {"t": times(*clock("2024-11-03 01:45", "2024-11-03 01:15*", "2024-11-03 01:30*"), zone="America/New_York")},
            clock("2024-11-03 01:30", "2024-11-03 01:30", "2024-11-03 01:30*"),
        ),
    ),
]
