-- insert_v1: stores new jobs, and counts those that are new. A job whose id is stored already stays as it is. A job
-- whose key is held is not stored.
--
-- Arguments
--   p_*      one element for each job; p_kind is the number of its row in the k_* arrays (all: job_columns.py)
--   k_*      one element for each kind of job: what jobs of the batch have in common
--   keyed    whether any job has a key
--   unordered  whether the jobs count as out of order (see exchange.sql), because nobody knows when the caller commits
--   channel  where to NOTIFY at commit; NULL: nowhere
--   token    what to NOTIFY: the sending process, which ignores its own messages
--   counted  what the jobs count as (tarry/store/rules/history/journal.py); empty: as nothing
-- Answer     one row for each job whose key is held: its place in the batch (1 is the first), and the id of the holder
-- Cost       without keys one statement for all jobs. With keys, or if some are stored already, each job looks up
--            job_pkey once and job_key twice. One row is read of limits, and one is written to journal.
CREATE OR REPLACE FUNCTION {s}.insert_v1({new_arguments}, keyed boolean,
    unordered boolean, channel text, token text, counted bytea)
RETURNS TABLE (place bigint, lives bytea) LANGUAGE plpgsql
    -- Plans must not depend on when the tables were last analysed: each statement has its index.
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
AS $function$
#variable_conflict use_column
DECLARE
    limited boolean := EXISTS (SELECT FROM {s}.limits l);
    in_order_from bigint := {clock} - {stored_within};
    one_by_one boolean := keyed;
    digits bytea := convert_to(repeat('0', cardinality(p_id)), 'UTF8');  -- of each job: 1 if it is new
    new record;
    holder uuid;
BEGIN
    IF NOT keyed THEN
        BEGIN
            INSERT INTO {s}.job ({stored}, out_of_order)
            SELECT {new_values},
                unordered OR p.due < in_order_from OR (k.state = 1 AND abs(k.claim_order) > 1)
            FROM unnest({p_arrays}) AS p ({p_names})
            JOIN unnest({k_arrays}) WITH ORDINALITY AS k ({k_names}, kind)
            ON k.kind = p.kind;
        EXCEPTION WHEN unique_violation THEN
            one_by_one := true;  -- some are stored already: their answer was lost, and they were sent again
        END;
    END IF;
    IF one_by_one THEN
        -- Ordered by key: two batches with the same keys wait for each other, but never in a circle.
        FOR new IN
            SELECT {new_values},
                unordered OR p.due < in_order_from OR (k.state = 1 AND abs(k.claim_order) > 1) AS out_of_order,
                p.n
            FROM unnest({p_arrays}) WITH ORDINALITY AS p ({p_names}, n)
            JOIN unnest({k_arrays}) WITH ORDINALITY AS k ({k_names}, kind)
            ON k.kind = p.kind
            ORDER BY k.task, k.key, CASE WHEN k.key IS NULL THEN p.id END, p.n
        LOOP
            CONTINUE WHEN EXISTS (SELECT FROM {s}.job j WHERE j.id = new.id);
            FOR attempt IN 1..20 LOOP
                UPDATE {s}.job j SET key_held_until = 0
                WHERE j.task = new.task AND j.key = new.key AND j.key_held_until > 0
                    AND j.key_held_until <= new.state_since;
                INSERT INTO {s}.job ({stored}, out_of_order)
                VALUES ({new_record}, new.out_of_order)
                ON CONFLICT DO NOTHING;
                IF FOUND THEN
                    digits := set_byte(digits, new.n::int - 1, ascii('1'));
                    EXIT;
                END IF;
                EXIT WHEN EXISTS (SELECT FROM {s}.job j WHERE j.id = new.id);
                SELECT j.id INTO holder FROM {s}.job j
                WHERE j.task = new.task AND j.key = new.key AND j.key_held_until > 0
                    AND j.key_held_until > new.state_since;
                IF FOUND THEN
                    place := new.n; lives := uuid_send(holder);
                    RETURN NEXT;
                    EXIT;
                END IF;
            END LOOP;
        END LOOP;
    END IF;
    IF limited THEN
        INSERT INTO {s}.lane (queue, band, task, lane)
        SELECT DISTINCT k.queue, (k.claim_order < 0)::int - (k.claim_order > 0)::int, k.task, coalesce(k.lane, '')
        FROM unnest(k_task, k_queue, k_claim_order, k_state, k_lane) AS k (task, queue, claim_order, state, lane)
        WHERE k.state = 1 AND EXISTS (SELECT FROM {s}.limits e WHERE e.name = 'each:' || k.task);
    END IF;
    IF length(counted) > 0 AND NOT one_by_one THEN
        INSERT INTO {s}.journal (record) VALUES (counted);
    ELSIF length(counted) > 0 AND position('1'::bytea IN digits) > 0 THEN
        INSERT INTO {s}.journal (record) VALUES (digits || counted);
    END IF;
    IF channel IS NOT NULL THEN
        PERFORM pg_notify(channel, token);
    END IF;
END
$function$
