"""The functions that claim, alone or after changes, and find the queues that there are."""

from tarry.store.postgres.changing import CHANGE_ARGUMENTS
from tarry.store.postgres.functions import (
    CLOCK,
    EACH_LIMITED,
    LIMITED,
    ON_TIME,
    SEEN_WITHIN,
    SETTINGS,
    UNTIL_AN_END,
    lanes_of,
    ready,
)

JOB = """id bytea, task text, body bytea, queue text, priority bigint, due bigint, epoch int, failures int, losses int,
    expires bigint, key text, note bytea, unique_for bigint, holds bigint, lane text, headers bytea, progress bytea"""

_CLAIMED = """uuid_send(j.id), j.task, j.body, j.queue, -j.rank, j.due, j.epoch, j.failures, j.losses, j.expires,
            j.key, j.note, j.unique_for, j.holds, j.lane, j.headers, j.progress"""

_NOTHING = "NULL::int[], NULL::bigint[], NULL::bigint, NULL::bigint, NULL::boolean, NULL::boolean"

_TAKE = """state = 2, owner = me, epoch = j.epoch + 1, since = now_,
            holds = CASE WHEN j.unique_for < 0 THEN 0 ELSE j.holds END"""

_ON_TIME_READY = ready("on time", "w_queue[w]", "w_band[w]", "w_floor[w]")
_ASIDE_READY = ready("aside", "w_queue[w]", "w_band[w]")

PROMOTE = f"""
CREATE FUNCTION {{s}}.promote_v1(most int, now_ bigint, floor_ bigint)
RETURNS bigint LANGUAGE plpgsql AS $function$
#variable_conflict use_variable
DECLARE
    late bigint := {CLOCK} - {ON_TIME};
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
        UPDATE {{s}}.job j SET state = 1, since = now_, aside = j.due < late OR abs(j.rank) > 1
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

_ON_TIME_FIRST = (
    "(SELECT j.due FROM {s}.job j WHERE j.state = 0 AND NOT j.aside AND j.due >= s_floor ORDER BY j.due LIMIT 1)"
)
_ASIDE_FIRST = "(SELECT j.due FROM {s}.job j WHERE j.state = 0 AND j.aside ORDER BY j.due LIMIT 1)"

EXCHANGE = f"""
CREATE FUNCTION {{s}}.exchange_v1(lazy boolean, {CHANGE_ARGUMENTS}, now_ bigint,
    w_queue text[], w_band smallint[], w_count int[], w_floor bigint[], s_floor bigint, most int, promoted int,
    me text, lease bigint)
RETURNS TABLE ({JOB}, made int[], floors bigint[], scheduled_floor bigint, next_due bigint, limited boolean,
    elsewhere boolean) LANGUAGE plpgsql {SETTINGS} AS $function$
#variable_conflict use_column
DECLARE
    cap bigint := {CLOCK} - {SEEN_WITHIN};
    wants int := CASE WHEN most > 0 THEN cardinality(w_queue) ELSE 0 END;
    any_paused boolean;
    any_laned boolean;
    late bigint;
    open boolean[];
    aside boolean[];
    got int := 0;
    room int;
    taken int;
BEGIN
    IF lazy THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    IF cardinality(c_id) > 0 THEN
        made := {{s}}.apply_v1(c_id, c_kind, c_note, k_was, k_epoch, k_to, k_since, k_due, k_failures, k_losses,
            k_until, k_queue, k_rank, k_expires, k_holds, k_body, k_owner, singly, now_);
    END IF;
    SELECT EXISTS ({LIMITED}), EXISTS (SELECT FROM {{s}}.paused),
        EXISTS (SELECT FROM {{s}}.job r WHERE r.state = 1 AND r.lane IS NOT NULL), {_ON_TIME_FIRST}, {_ASIDE_FIRST}
    INTO limited, any_paused, any_laned, scheduled_floor, late;
    next_due := least(scheduled_floor, late);
    scheduled_floor := least(scheduled_floor, cap);
    floors := w_floor;
    elsewhere := false;
    IF any_paused AND wants > 0 THEN
        SELECT array_agg(NOT EXISTS (SELECT FROM {{s}}.paused p WHERE p.queue = w.queue) ORDER BY w.n) INTO open
        FROM unnest(w_queue) WITH ORDINALITY AS w (queue, n);
        wants := CASE WHEN true = ANY (open) THEN wants ELSE 0 END;
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
        SELECT coalesce(bool_or(open IS NULL OR open[w.n]), false) INTO elsewhere
        FROM unnest(w_queue, w_band) WITH ORDINALITY AS w (queue, band, n)
        WHERE {_IN_LANES};
        -- Then the claim is made in lanes, elsewhere.
        wants := CASE WHEN elsewhere THEN 0 ELSE wants END;
    END IF;
    IF wants > 0 THEN
        SELECT array_agg(least(p.first, cap) ORDER BY p.n), array_agg(p.aside ORDER BY p.n),
            array_agg((p.first IS NOT NULL OR p.aside) AND (open IS NULL OR open[p.n]) ORDER BY p.n)
        INTO floors, aside, open
        FROM (
            SELECT w.n, (SELECT r.due {ready("on time", "w.queue", "w.band", "w.floor")}
                ORDER BY r.due, r.id LIMIT 1) AS first, EXISTS (SELECT {ready("aside", "w.queue", "w.band")}) AS aside
            FROM unnest(w_queue, w_band, w_floor) WITH ORDINALITY AS w (queue, band, floor, n)) AS p;
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
                IF aside[w] THEN
                    RETURN QUERY
                    WITH line AS (
                        SELECT r.ctid AS at, r.rank, r.due, r.id {_ON_TIME_READY}
                        ORDER BY r.due, r.id LIMIT room FOR UPDATE SKIP LOCKED),
                    apart AS (
                        SELECT r.ctid AS at, r.rank, r.due, r.id {_ASIDE_READY}
                        ORDER BY r.rank, r.due, r.id LIMIT room FOR UPDATE SKIP LOCKED)
                    UPDATE {{s}}.job j SET {_TAKE}
                    WHERE j.ctid = ANY (ARRAY(
                        SELECT b.at FROM (SELECT * FROM line UNION ALL SELECT * FROM apart) AS b
                        ORDER BY b.rank, b.due, b.id LIMIT room))
                    RETURNING {_CLAIMED}, {_NOTHING};
                ELSE
                    RETURN QUERY
                    UPDATE {{s}}.job j SET {_TAKE}
                    WHERE j.ctid = ANY (ARRAY(
                        SELECT r.ctid {_ON_TIME_READY} ORDER BY r.due, r.id LIMIT room FOR UPDATE SKIP LOCKED))
                    RETURNING {_CLAIMED}, {_NOTHING};
                END IF;
                GET DIAGNOSTICS taken = ROW_COUNT;
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
CREATE FUNCTION {s}.queues_v1(w_queue text[], w_band smallint[], w_floor bigint[])
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
        IF NOT w_queue[w] = ANY (ready) AND (EXISTS (SELECT {_ON_TIME_READY}) OR EXISTS (SELECT {_ASIDE_READY})) THEN
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
