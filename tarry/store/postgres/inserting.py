"""The function that inserts."""

from tarry.store.postgres.functions import CLOCK, LIMITED, SETTINGS, STORED_WITHIN, lanes_of

_INSERT_COLUMNS = """id, task, body, queue, rank, due, state, epoch, failures, losses, since, until, expires, key, note,
        unique_for, holds, lane, headers, progress, aside"""

_NEW = f"""
        SELECT p.id, k.task, p.body, k.queue, k.rank, p.due, k.state, k.epoch, k.failures, k.losses, p.since, k.until,
            k.expires, k.key, k.note, k.unique_for, k.holds,
            CASE WHEN limited AND k.lane IS NULL AND EXISTS (
                {LIMITED} WHERE l.name IN ('task:' || k.task, 'each:' || k.task)) THEN '' ELSE k.lane END AS lane,
            k.headers, k.progress, apart OR p.due < in_line_from OR (k.state = 1 AND abs(k.rank) > 1) AS aside, p.n
        FROM unnest(p_id, p_kind, p_due, p_since, p_body) WITH ORDINALITY AS p (id, kind, due, since, body, n)
        JOIN unnest(k_task, k_queue, k_rank, k_state, k_epoch, k_failures, k_losses, k_until, k_expires, k_key, k_note,
            k_unique, k_holds, k_lane, k_headers, k_progress) WITH ORDINALITY
            AS k (task, queue, rank, state, epoch, failures, losses, until, expires, key, note, unique_for, holds, lane,
            headers, progress, kind)
        ON k.kind = p.kind"""

_LANES = lanes_of(
    "unnest(k_task, k_queue, k_rank, k_state, k_lane) AS k (task, queue, rank, state, lane) WHERE k.state = 1", "k"
)

INSERT_ARGUMENTS = """p_id uuid[], p_kind int[], p_due bigint[], p_since bigint[], p_body bytea[],
    k_task text[], k_queue text[], k_rank bigint[], k_state smallint[], k_epoch int[], k_failures int[], k_losses int[],
    k_until bigint[], k_expires bigint[], k_key text[], k_note bytea[], k_unique bigint[], k_holds bigint[],
    k_lane text[], k_headers bytea[], k_progress bytea[], keyed boolean, apart boolean, channel text, token text"""

INSERT = f"""
CREATE FUNCTION {{s}}.insert_v1({INSERT_ARGUMENTS})
RETURNS TABLE (place bigint, lives bytea) LANGUAGE plpgsql {SETTINGS} AS $function$
#variable_conflict use_column
DECLARE
    limited boolean := EXISTS ({LIMITED});
    in_line_from bigint := {CLOCK} - {STORED_WITHIN};
    new record;
    holder uuid;
BEGIN
    IF NOT keyed THEN
        BEGIN
            INSERT INTO {{s}}.job ({_INSERT_COLUMNS})
            SELECT {_INSERT_COLUMNS} FROM ({_NEW}) AS new;
        EXCEPTION WHEN unique_violation THEN
            INSERT INTO {{s}}.job ({_INSERT_COLUMNS})
            SELECT {_INSERT_COLUMNS} FROM ({_NEW}) AS new
            ORDER BY id ON CONFLICT DO NOTHING;
        END;
    ELSE
        -- In the order of keys: two such batches at a time wait for each other, but not in a circle.
        FOR new IN SELECT * FROM ({_NEW}) AS new ORDER BY task, key, n LOOP
            CONTINUE WHEN EXISTS (SELECT FROM {{s}}.job j WHERE j.id = new.id);
            FOR attempt IN 1..20 LOOP
                UPDATE {{s}}.job j SET holds = 0
                WHERE j.task = new.task AND j.key = new.key AND j.holds > 0 AND j.holds <= new.since;
                INSERT INTO {{s}}.job ({_INSERT_COLUMNS}) VALUES (new.id, new.task, new.body, new.queue, new.rank,
                    new.due, new.state, new.epoch, new.failures, new.losses, new.since, new.until, new.expires,
                    new.key, new.note, new.unique_for, new.holds, new.lane, new.headers, new.progress, new.aside)
                ON CONFLICT DO NOTHING;
                EXIT WHEN FOUND OR EXISTS (SELECT FROM {{s}}.job j WHERE j.id = new.id);
                SELECT j.id INTO holder FROM {{s}}.job j
                WHERE j.task = new.task AND j.key = new.key AND j.holds > 0 AND j.holds > new.since;
                IF FOUND THEN
                    place := new.n; lives := uuid_send(holder);
                    RETURN NEXT;
                    EXIT;
                END IF;
            END LOOP;
        END LOOP;
    END IF;
    IF limited THEN
        {_LANES};
    END IF;
    IF channel IS NOT NULL THEN
        PERFORM pg_notify(channel, token);
    END IF;
END
$function$
"""
