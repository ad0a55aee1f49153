"""The functions that claim, alone or after changes, and find the queues that there are."""

from tarry.store.postgres.changing import CHANGE_ARGUMENTS
from tarry.store.postgres.functions import (
    CLOCK,
    EACH_LIMITED,
    LIMITED,
    SEEN_WITHIN,
    SETTINGS,
    STORED_WITHIN,
    UNTIL_AN_END,
    any_aside,
    in_line,
    lanes_of,
    put_aside,
)

JOB = """id bytea, task text, body bytea, queue text, priority bigint, due bigint, epoch int, failures int, losses int,
    expires bigint, key text, note bytea, unique_for bigint, holds bigint, lane text, headers bytea, progress bytea"""

_CLAIMED = """uuid_send(j.id), j.task, j.body, j.queue, -j.rank, j.due, j.epoch, j.failures, j.losses, j.expires,
            j.key, j.note, j.unique_for, j.holds, j.lane, j.headers, j.progress"""

_NOTHING = "NULL::int[], NULL::bigint[], NULL::bigint[], NULL::bigint, NULL::bigint, NULL::boolean, NULL::boolean"

_TAKE = """state = 2, owner = me, epoch = j.epoch + 1, since = now_,
            holds = CASE WHEN j.unique_for < 0 THEN 0 ELSE j.holds END"""

_ON_TIME = in_line(False, "w_queue[w]", "w_band[w]", "w_floor[w]")
_ON_TIME_ASIDE = put_aside(False, "w_queue[w]", "w_band[w]")
_LATE = in_line(True, "w_queue[w]", "w_band[w]", "w_late_floor[w]")
_LATE_ASIDE = put_aside(True, "w_queue[w]", "w_band[w]")


def _line(rows: str, most: str) -> str:
    return f"SELECT r.ctid AS at, r.rank, r.due, r.id {rows} ORDER BY r.due, r.id LIMIT {most} FOR UPDATE SKIP LOCKED"


def _apart(rows: str, most: str) -> str:
    return f"""SELECT r.ctid AS at, r.rank, r.due, r.id {rows}
                        ORDER BY r.rank, r.due, r.id LIMIT {most} FOR UPDATE SKIP LOCKED"""


_TAKEN_IN_TURN = f"""WITH line AS ({_line(_ON_TIME, "share")}),
                    apart AS ({_apart(_ON_TIME_ASIDE, "share")}),
                    late_line AS ({_line(_LATE, "share")}),
                    late_apart AS ({_apart(_LATE_ASIDE, "share")}),
                    both_ AS (
                        SELECT *, false AS late FROM line UNION ALL SELECT *, false FROM apart
                        UNION ALL SELECT *, true FROM late_line UNION ALL SELECT *, true FROM late_apart),
                    placed AS (
                        SELECT *, row_number() OVER (PARTITION BY b.rank, b.late ORDER BY b.due, b.id) AS n
                        FROM both_ b),
                    drawn AS (
                        SELECT *, 1 = sum(CASE WHEN p.n = 1 THEN get_byte(uuid_send(p.id), 15) & 1 END)
                            OVER (PARTITION BY p.rank) AS late_begins
                        FROM placed p)
                    UPDATE {{s}}.job j SET {_TAKE}
                    WHERE j.ctid = ANY (ARRAY(
                        SELECT d.at FROM drawn d ORDER BY d.rank, d.n, d.late <> d.late_begins LIMIT room - taken))
                    RETURNING {_CLAIMED}, {_NOTHING}"""
"""As `lanes.merged` does: of each rank the first of both lines, then the second of both, and so on. late_begins: just
one of the last bits of the two that head them is set; where a rank has one line only, it does not matter."""

PROMOTE = f"""
CREATE FUNCTION {{s}}.promote_v1(most int, now_ bigint, floor_ bigint)
RETURNS bigint LANGUAGE plpgsql AS $function$
#variable_conflict use_variable
DECLARE
    in_line_from bigint := {CLOCK} - {STORED_WITHIN};
BEGIN
    WITH line AS (
        SELECT j.ctid AS at, j.due, j.id FROM {{s}}.job j
        WHERE j.state = 0 AND NOT j.aside AND j.due >= floor_ AND j.due <= now_
        ORDER BY j.due, j.id LIMIT most FOR UPDATE SKIP LOCKED),
    apart AS (
        SELECT j.ctid AS at, j.due, j.id FROM {{s}}.job j
        WHERE j.state = 0 AND j.aside AND j.due <= now_
        ORDER BY j.due, j.id LIMIT most FOR UPDATE SKIP LOCKED),
    promoted AS (
        UPDATE {{s}}.job j SET state = 1, since = now_, aside = j.due < in_line_from OR abs(j.rank) > 1
        WHERE j.ctid = ANY (ARRAY(
            SELECT b.at FROM (SELECT * FROM line UNION ALL SELECT * FROM apart) AS b ORDER BY b.due, b.id LIMIT most))
        RETURNING j.queue, j.rank, j.task, j.lane)
    {lanes_of("promoted p WHERE p.lane IS NOT NULL", "p")};
    RETURN least(
        (SELECT j.due FROM {{s}}.job j WHERE j.state = 0 AND NOT j.aside AND j.due >= floor_ ORDER BY j.due LIMIT 1),
        (SELECT j.due FROM {{s}}.job j WHERE j.state = 0 AND j.aside ORDER BY j.due LIMIT 1));
END
$function$
"""
"""Makes due jobs ready; answers when the next is due. To be called by a function that has the settings."""

_TASKS = """WITH RECURSIVE found (task) AS (
                (SELECT r.task {line} ORDER BY r.task LIMIT 1)
                UNION ALL
                SELECT (SELECT r.task {line} AND r.task > found.task ORDER BY r.task LIMIT 1)
                FROM found WHERE found.task IS NOT NULL)""".replace(
    "{line}",
    """FROM {s}.job r WHERE r.state = 1 AND r.lane IS NOT NULL AND r.queue = w.queue
                    AND (r.rank > 0)::int - (r.rank < 0)::int = -w.band""",
)
_IN_LANES = f"""(SELECT true FROM {{s}}.limits l WHERE l.name = 'queue:' || w.queue)
            OR (SELECT true FROM {{s}}.lane o
                WHERE o.again IS NULL AND o.queue = w.queue AND o.band = w.band LIMIT 1)
            OR EXISTS ({_TASKS}
                SELECT FROM found WHERE found.task IS NOT NULL AND NOT {EACH_LIMITED % "found.task"})"""
"""Whether a want has to be claimed for in lanes: those that are full are all closed, and count no more. Not EXISTS for
the first two: its rows may be read all and hashed."""

_LINE_FIRST = (
    "(SELECT j.due FROM {s}.job j WHERE j.state = 0 AND NOT j.aside AND j.due >= s_floor ORDER BY j.due LIMIT 1)"
)
_ASIDE_FIRST = "(SELECT j.due FROM {s}.job j WHERE j.state = 0 AND j.aside ORDER BY j.due LIMIT 1)"

EXCHANGE = f"""
CREATE FUNCTION {{s}}.exchange_v1(lazy boolean, {CHANGE_ARGUMENTS}, now_ bigint,
    w_queue text[], w_band smallint[], w_count int[], w_floor bigint[], w_late_floor bigint[], s_floor bigint,
    most int, promoted int, me text, lease bigint)
RETURNS TABLE ({JOB}, made int[], floors bigint[], late_floors bigint[], scheduled_floor bigint, next_due bigint,
    limited boolean, elsewhere boolean) LANGUAGE plpgsql {SETTINGS} AS $function$
#variable_conflict use_column
DECLARE
    cap bigint := {CLOCK} - {SEEN_WITHIN};
    wants int := CASE WHEN most > 0 THEN cardinality(w_queue) ELSE 0 END;
    any_paused boolean;
    any_laned boolean;
    aside_due bigint;
    unpaused boolean[];
    open boolean[];
    aside boolean[];
    on_time boolean[];
    late boolean[];
    got int := 0;
    room int;
    share int;
    taken int;
    more int;
BEGIN
    IF lazy THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    IF cardinality(c_id) > 0 THEN
        made := {{s}}.apply_v1(c_id, c_kind, c_note, k_was, k_epoch, k_to, k_since, k_due, k_failures, k_losses,
            k_until, k_queue, k_rank, k_expires, k_holds, k_body, k_owner, singly, now_);
    END IF;
    SELECT EXISTS ({LIMITED}), EXISTS (SELECT FROM {{s}}.paused),
        EXISTS (SELECT FROM {{s}}.job r WHERE r.state = 1 AND r.lane IS NOT NULL), {_LINE_FIRST}, {_ASIDE_FIRST}
    INTO limited, any_paused, any_laned, scheduled_floor, aside_due;
    next_due := least(scheduled_floor, aside_due);
    scheduled_floor := least(scheduled_floor, cap);
    floors := w_floor;
    late_floors := w_late_floor;
    elsewhere := false;
    IF any_paused AND wants > 0 THEN
        SELECT array_agg(NOT EXISTS (SELECT FROM {{s}}.paused p WHERE p.queue = w.queue) ORDER BY w.n) INTO unpaused
        FROM unnest(w_queue) WITH ORDINALITY AS w (queue, n);
        wants := CASE WHEN true = ANY (unpaused) THEN wants ELSE 0 END;
    END IF;
    IF wants > 0 AND next_due <= now_ THEN
        next_due := {{s}}.promote_v1(promoted, now_, s_floor);
        any_laned := true;  -- perhaps, by now
    END IF;
    IF wants > 0 AND limited THEN
        UPDATE {{s}}.lane SET again = NULL WHERE ctid = ANY (ARRAY(
            SELECT o.ctid FROM {{s}}.lane o WHERE o.again IS NOT NULL AND o.again <= now_
            ORDER BY o.again LIMIT 100 FOR UPDATE SKIP LOCKED));
        next_due := least(next_due, nullif(
            (SELECT o.again FROM {{s}}.lane o WHERE o.again IS NOT NULL ORDER BY o.again LIMIT 1), {UNTIL_AN_END}));
    END IF;
    IF wants > 0 AND (limited OR any_laned) THEN
        SELECT coalesce(bool_or(unpaused IS NULL OR unpaused[w.n]), false) INTO elsewhere
        FROM unnest(w_queue, w_band) WITH ORDINALITY AS w (queue, band, n)
        WHERE {_IN_LANES};
        -- Then the claim is made in lanes, elsewhere.
        wants := CASE WHEN elsewhere THEN 0 ELSE wants END;
    END IF;
    IF wants > 0 THEN
        SELECT array_agg(least(p.first, cap)), array_agg(least(p.late_first, cap)), array_agg(p.first IS NOT NULL),
            array_agg(p.late_first IS NOT NULL),
            array_agg((p.first IS NOT NULL OR p.late_first IS NOT NULL) AND (unpaused IS NULL OR unpaused[p.n])),
            array_agg(p.apart IS NOT NULL)
        INTO floors, late_floors, on_time, late, open, aside
        -- No EXISTS here and below: its rows may be read all and hashed.
        FROM (
            SELECT w.n,
                (SELECT r.due {in_line(False, "w.queue", "w.band", "w.floor")} ORDER BY r.due, r.id LIMIT 1) AS first,
                (SELECT r.due {in_line(True, "w.queue", "w.band", "w.late_floor")} ORDER BY r.due, r.id LIMIT 1)
                    AS late_first,
                (SELECT true {any_aside("w.queue", "w.band")} LIMIT 1) AS apart
            FROM unnest(w_queue, w_band, w_floor, w_late_floor)
                WITH ORDINALITY AS w (queue, band, floor, late_floor, n)
            ORDER BY w.n) AS p;  -- sorted once here, not once for each array
        -- Which line they are of is asked only where there are any: a claim that finds none pays for one look.
        IF true = ANY (aside) THEN
            SELECT array_agg(p.aside), array_agg(on_time[p.n] OR p.aside), array_agg(late[p.n] OR p.late_aside),
                array_agg(open[p.n] OR ((p.aside OR p.late_aside) AND (unpaused IS NULL OR unpaused[p.n])))
            INTO aside, on_time, late, open
            FROM (
                SELECT w.n, (SELECT true {put_aside(False, "w.queue", "w.band")} LIMIT 1) IS NOT NULL AS aside,
                    (SELECT true {put_aside(True, "w.queue", "w.band")} LIMIT 1) IS NOT NULL AS late_aside
                FROM unnest(w_queue, w_band) WITH ORDINALITY AS w (queue, band, n)
                ORDER BY w.n) AS p;
        END IF;
        FOR turn IN 0 .. 2 * wants - 1 LOOP
            DECLARE
                w int := turn % wants + 1;
            BEGIN
                room := most - got;
                EXIT WHEN room <= 0;
                IF turn < wants THEN
                    room := least(room, w_count[w]);
                END IF;
                CONTINUE WHEN room <= 0 OR NOT open[w];
                taken := 0;
                IF late[w] THEN
                    -- Jobs of the middle band have one rank: half of the room from each line is enough, and what is
                    -- not locked stays free for other claimers.
                    share := CASE WHEN on_time[w] AND w_band[w] = 0 THEN (room + 1) / 2 ELSE room END;
                    LOOP
                        RETURN QUERY
                        {_TAKEN_IN_TURN};
                        GET DIAGNOSTICS more = ROW_COUNT;
                        taken := taken + more;
                        EXIT WHEN taken = room OR share = room;
                        share := room;  -- one of the lines is at its end: the other fills
                    END LOOP;
                ELSIF aside[w] THEN
                    RETURN QUERY
                    WITH line AS ({_line(_ON_TIME, "room")}),
                    apart AS ({_apart(_ON_TIME_ASIDE, "room")})
                    UPDATE {{s}}.job j SET {_TAKE}
                    WHERE j.ctid = ANY (ARRAY(
                        SELECT b.at FROM (SELECT * FROM line UNION ALL SELECT * FROM apart) AS b
                        ORDER BY b.rank, b.due, b.id LIMIT room))
                    RETURNING {_CLAIMED}, {_NOTHING};
                    GET DIAGNOSTICS taken = ROW_COUNT;
                ELSE
                    RETURN QUERY
                    UPDATE {{s}}.job j SET {_TAKE}
                    WHERE j.ctid = ANY (ARRAY(
                        SELECT r.ctid {_ON_TIME} ORDER BY r.due, r.id LIMIT room FOR UPDATE SKIP LOCKED))
                    RETURNING {_CLAIMED}, {_NOTHING};
                    GET DIAGNOSTICS taken = ROW_COUNT;
                END IF;
                got := got + taken;
                -- Fewer than asked for: this line is at its end, no use in asking again.
                open[w] := taken = room;
            END;
        END LOOP;
        IF got > 0 AND NOT EXISTS (
                SELECT FROM {{s}}.owner o WHERE o.name = me AND o.until >= now_ + lease / 2) THEN
            INSERT INTO {{s}}.owner AS o (name, until) VALUES (me, now_ + lease)
            ON CONFLICT (name) DO UPDATE SET until = excluded.until WHERE o.until < now_ + lease / 2;
        END IF;
    END IF;
    id := NULL;
    RETURN NEXT;
END
$function$
"""

QUEUES = (
    """
CREATE FUNCTION {s}.queues_v1(w_queue text[], w_band smallint[], w_floor bigint[], w_late_floor bigint[])
RETURNS TABLE (queue text, paused boolean) LANGUAGE plpgsql """
    + SETTINGS
    + f""" AS $function$
#variable_conflict use_column
DECLARE
    known text[] := (SELECT coalesce(array_agg(DISTINCT q ORDER BY q), '{{}}') FROM unnest(w_queue) q);
    ready text[] := '{{}}';
    found_ text;
    top text;
BEGIN
    FOR w IN 1..coalesce(cardinality(w_queue), 0) LOOP
        IF NOT w_queue[w] = ANY (ready) AND (EXISTS (SELECT {_ON_TIME}) OR EXISTS (SELECT {_LATE})
                OR EXISTS (SELECT {any_aside("w_queue[w]", "w_band[w]")})) THEN
            ready := ready || w_queue[w];
        END IF;
    END LOOP;
    -- In the gaps between the known ones: what is gone of those is not walked over.
    FOR g IN 0..cardinality(known) LOOP
        found_ := CASE WHEN g = 0 THEN '' ELSE known[g] END;  -- no queue has the empty name
        top := CASE WHEN g < cardinality(known) THEN known[g + 1] END;
        LOOP
            IF top IS NULL THEN
                found_ := (SELECT r.queue FROM {{s}}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue > found_
                    ORDER BY r.queue LIMIT 1);
            ELSE
                found_ := (SELECT r.queue FROM {{s}}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue > found_
                    AND r.queue < top ORDER BY r.queue LIMIT 1);
            END IF;
            EXIT WHEN found_ IS NULL;
            ready := ready || found_;
        END LOOP;
    END LOOP;
    found_ := (SELECT r.queue FROM {{s}}.job r WHERE r.state = 1 AND r.lane IS NOT NULL ORDER BY r.queue LIMIT 1);
    WHILE found_ IS NOT NULL LOOP
        ready := ready || found_;
        found_ := (SELECT r.queue FROM {{s}}.job r WHERE r.state = 1 AND r.lane IS NOT NULL AND r.queue > found_
            ORDER BY r.queue LIMIT 1);
    END LOOP;
    RETURN QUERY
    SELECT q, EXISTS (SELECT FROM {{s}}.paused p WHERE p.queue = q)
    FROM (SELECT unnest(ready) AS q UNION SELECT p.queue FROM {{s}}.paused p) AS named;
END
$function$
"""
)
