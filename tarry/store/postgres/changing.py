"""The functions that make changes, and lower the levels of what ends by them."""

from tarry.store.postgres.functions import CLOCK, LIMITED, STORED_WITHIN, lanes_of

_CHANGES = """
        unnest(c_id, c_kind, c_note) WITH ORDINALITY AS p (id, kind, note, n)
        JOIN unnest(k_was, k_epoch, k_to, k_since, k_due, k_failures, k_losses, k_until, k_queue, k_rank, k_expires,
            k_holds, k_body, k_owner) WITH ORDINALITY
            AS k (was, epoch, become, since, due, failures, losses, until, queue, rank, expires, holds, body, owner,
            kind)
        ON k.kind = p.kind"""

_CHANGED = """state = c.become, owner = NULL, since = c.since, due = coalesce(c.due, j.due), failures = c.failures,
            losses = c.losses, until = c.until, note = c.note, queue = coalesce(c.queue, j.queue),
            rank = coalesce(c.rank, j.rank), expires = coalesce(c.expires, j.expires),
            holds = coalesce(c.holds, j.holds), body = coalesce(c.body, j.body),
            aside = c.become <= 1 AND (coalesce(c.due, j.due) < in_line_from
                OR (c.become = 1 AND abs(coalesce(c.rank, j.rank)) > 1))"""

_AS_SEEN = "j.id = c.id AND j.state = c.was AND j.epoch = c.epoch AND j.owner IS NOT DISTINCT FROM c.owner"
"""The fence."""

_ANEW = f"""UPDATE {{s}}.job SET lane = '' WHERE id = ANY (c_id) AND lane IS NULL AND state < 2
            AND ('task:' || task IN ({LIMITED}) OR 'each:' || task IN ({LIMITED}))"""

CHANGE_ARGUMENTS = """c_id uuid[], c_kind int[], c_note bytea[], k_was smallint[], k_epoch int[], k_to smallint[],
    k_since bigint[], k_due bigint[], k_failures int[], k_losses int[], k_until bigint[], k_queue text[],
    k_rank bigint[], k_expires bigint[], k_holds bigint[], k_body bytea[], k_owner text[], singly boolean"""

_ENDING = """
        SELECT array_agg(j.id), array_agg(j.queue), array_agg(j.task), array_agg(j.lane)
        INTO e_id, e_queue, e_task, e_lane FROM (
            SELECT id, queue, task, lane FROM {s}.job
            WHERE state = 2 AND (id, epoch, owner) IN (
                SELECT p.id, k.epoch, k.owner FROM unnest(c_id, c_kind) AS p (id, kind)
                JOIN unnest(k_was, k_epoch, k_owner) WITH ORDINALITY AS k (was, epoch, owner, kind)
                ON k.kind = p.kind WHERE k.was = 2)
            ORDER BY id FOR UPDATE) AS j"""
"""The attempts that these changes are to end; as the jobs are before, since a change may give them another queue."""

_LANES = lanes_of("{s}.job j WHERE j.id = ANY (c_id) AND j.state = 1 AND j.lane IS NOT NULL", "j")

_MADE_OF = "ARRAY(SELECT c_id[m] FROM unnest(made) AS m)"

ENDED = f"""
CREATE FUNCTION {{s}}.ended_v1(e_id uuid[], e_queue text[], e_task text[], e_lane text[], made uuid[], now_ bigint)
RETURNS void LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    names text[];
    counts bigint[];
BEGIN
    WITH ended AS (
        SELECT queue, task, lane FROM unnest(e_id, e_queue, e_task, e_lane) AS e (id, queue, task, lane)
        WHERE id = ANY (made)),
    named AS (
        SELECT 'queue:' || queue AS name FROM ended
        UNION ALL SELECT 'task:' || task FROM ended WHERE lane IS NOT NULL
        UNION ALL SELECT 'each:' || task || chr(31) || lane FROM ended WHERE lane IS NOT NULL),
    counted AS (
        SELECT name, count(*) AS n FROM named WHERE split_part(name, chr(31), 1) IN ({LIMITED}) GROUP BY name)
    SELECT array_agg(name), array_agg(n) INTO names, counts FROM counted;
    IF names IS NULL THEN
        RETURN;
    END IF;
    PERFORM FROM {{s}}.level WHERE name = ANY (names) ORDER BY starts_with(name, 'each:'), name FOR UPDATE;
    UPDATE {{s}}.level l SET running = greatest(0, l.running - e.n)
    FROM unnest(names, counts) AS e (name, n) WHERE l.name = e.name;
    -- After the levels, which a claim locks before it closes their lanes.
    UPDATE {{s}}.lane SET again = NULL WHERE again IS NOT NULL AND (task, lane) IN (
        SELECT e.task, e.lane FROM unnest(e_id, e_task, e_lane) AS e (id, task, lane) WHERE e.id = ANY (made));
    DELETE FROM {{s}}.level
    WHERE name = ANY (names) AND starts_with(name, 'each:') AND running = 0 AND next <= now_;
END
$function$
"""
"""Lowers the levels of those attempts whose changes were made."""

APPLY = f"""
CREATE FUNCTION {{s}}.apply_v1({CHANGE_ARGUMENTS}, now_ bigint)
RETURNS int[] LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    in_line_from bigint := {CLOCK} - {STORED_WITHIN};
    limited boolean := EXISTS ({LIMITED});
    made int[];
    gone int[];
    e_id uuid[];
    e_queue text[];
    e_task text[];
    e_lane text[];
    c record;
BEGIN
    IF limited THEN
        {_ENDING};
    END IF;
    IF NOT singly THEN
        WITH updated AS (
            UPDATE {{s}}.job j SET {_CHANGED}
            FROM (SELECT p.id, p.note, p.n, k.* FROM {_CHANGES}) AS c
            WHERE {_AS_SEEN} AND c.become IS NOT NULL RETURNING c.n)
        SELECT coalesce(array_agg(n::int), '{{}}') INTO made FROM updated;
        IF array_position(k_to, NULL) IS NOT NULL THEN
            WITH deleted AS (
                DELETE FROM {{s}}.job j USING (SELECT p.id, p.n, k.* FROM {_CHANGES}) AS c
                WHERE {_AS_SEEN} AND c.become IS NULL RETURNING c.n)
            SELECT coalesce(array_agg(n::int), '{{}}') INTO gone FROM deleted;
            made := made || gone;
        END IF;
        IF limited THEN
            PERFORM {{s}}.ended_v1(e_id, e_queue, e_task, e_lane, {_MADE_OF}, now_);
        END IF;
        IF limited AND 3 <= ANY (k_was) THEN
            {_ANEW};
        END IF;
        IF limited AND 1 = ANY (k_to) THEN
            {_LANES};
        END IF;
        RETURN made;
    END IF;
    made := '{{}}';
    FOR c IN SELECT p.id, p.note, p.n, k.* FROM {_CHANGES} ORDER BY p.n LOOP
        IF c.become IS NULL THEN
            DELETE FROM {{s}}.job j WHERE {_AS_SEEN};
            made := CASE WHEN FOUND THEN made || c.n::int ELSE made END;
            CONTINUE;
        END IF;
        IF c.holds > 0 THEN
            UPDATE {{s}}.job j SET holds = 0 WHERE j.holds BETWEEN 1 AND now_ AND (j.task, j.key) =
                (SELECT o.task, o.key FROM {{s}}.job o WHERE o.id = c.id AND o.state = c.was AND o.epoch = c.epoch);
        END IF;
        BEGIN
            UPDATE {{s}}.job j SET {_CHANGED} WHERE {_AS_SEEN};
            made := CASE WHEN FOUND THEN made || c.n::int ELSE made END;
        EXCEPTION WHEN unique_violation THEN
            NULL;  -- another holds the key
        END;
    END LOOP;
    IF limited THEN
        PERFORM {{s}}.ended_v1(e_id, e_queue, e_task, e_lane, {_MADE_OF}, now_);
    END IF;
    IF limited AND 3 <= ANY (k_was) THEN
        {_ANEW};
    END IF;
    IF limited AND 1 = ANY (k_to) THEN
        {_LANES};
    END IF;
    RETURN made;
END
$function$
"""
