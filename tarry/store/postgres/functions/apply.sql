-- apply_v1: makes changes to jobs, each only if its job is still as it was seen: same state, epoch and owner.
-- For exchange_v1 and exchange_nodes_v1 alone, which have the other settings; what the attempts that end do to levels is
-- for these, too (ending.sql).
--
-- Arguments
--   c_*      one element for each change: id of the job, the kind of change (its row in the k_* arrays), note
--   k_*      one element for each kind of change: state, epoch and owner as seen (k_was, k_epoch, k_owner), and the new
--            values. NULL keeps what is there; k_to NULL deletes the job
--   singly   one by one, in their order: a job has several changes, or a key is to be held, which another may hold
--   now_     microseconds
-- Answer     the places of the changes that were made (1 is the first), in any order
-- Cost       all at once: one statement, and one more if a job is deleted; each looks up job_pkey once a change.
--            Singly: one or two statements a change. With limits also one look at the changed jobs for
--            each of: jobs that come back from their end, jobs that become ready.
CREATE OR REPLACE FUNCTION {s}.apply_v1(c_id uuid[], c_kind int[], c_note bytea[], k_was smallint[], k_epoch int[],
    k_to smallint[], k_state_since bigint[], k_due bigint[], k_failures int[], k_crashes int[], k_keep_until bigint[],
    k_queue text[], k_claim_order bigint[], k_expires bigint[], k_key_held_until bigint[], k_body bytea[],
        k_owner text[],
    k_attempts bytea[], singly boolean, now_ bigint)
RETURNS int[] LANGUAGE plpgsql
    -- A plan that was made for a few changes must not compare each of a thousand with each.
    SET enable_nestloop = off
AS $function$
#variable_conflict use_column
DECLARE
    in_order_from bigint := {clock} - {stored_within};
    limited boolean := EXISTS (SELECT FROM {s}.limits l);
    made int[] := '{}';
    deleted_ int[];
    c record;
BEGIN
    IF NOT singly AND cardinality(c_id) = 1 AND k_to[1] IS NOT NULL THEN
        -- The usual case while jobs come one by one: nothing to join, so half the cost of the next statement.
        UPDATE {s}.job j SET state = k_to[1], owner = NULL, state_since = k_state_since[1], due = coalesce(k_due[1], j.due),
            failures = k_failures[1], crashes = k_crashes[1], keep_until = k_keep_until[1], note = c_note[1],
            queue = coalesce(k_queue[1], j.queue), claim_order = coalesce(k_claim_order[1], j.claim_order),
            expires = coalesce(k_expires[1], j.expires), key_held_until = coalesce(k_key_held_until[1],
                j.key_held_until),
            body = coalesce(k_body[1], j.body), attempts = coalesce(k_attempts[1], j.attempts),
            out_of_order = k_to[1] <= 1 AND (coalesce(k_due[1], j.due) < in_order_from
                OR (k_to[1] = 1 AND abs(coalesce(k_claim_order[1], j.claim_order)) > 1))
        WHERE j.id = c_id[1] AND j.state = k_was[1] AND j.epoch = k_epoch[1]
            AND j.owner IS NOT DISTINCT FROM k_owner[1];
        made := CASE WHEN FOUND THEN ARRAY[1] ELSE made END;
    ELSIF NOT singly THEN
        -- By ANY as well: with the join alone, a plan made while the table was small reads the whole table later on.
        WITH updated AS (
            UPDATE {s}.job j SET state = c.become, owner = NULL, state_since = c.state_since, due = coalesce(c.due,
                j.due),
                failures = c.failures, crashes = c.crashes, keep_until = c.keep_until, note = c.note,
                queue = coalesce(c.queue, j.queue), claim_order = coalesce(c.claim_order, j.claim_order),
                expires = coalesce(c.expires, j.expires), key_held_until = coalesce(c.key_held_until, j.key_held_until),
                body = coalesce(c.body, j.body), attempts = coalesce(c.attempts, j.attempts),
                out_of_order = c.become <= 1 AND (coalesce(c.due, j.due) < in_order_from
                    OR (c.become = 1 AND abs(coalesce(c.claim_order, j.claim_order)) > 1))
            FROM (
                SELECT p.id, p.note, p.n, k.* FROM unnest(c_id, c_kind, c_note) WITH ORDINALITY AS p (id, kind, note, n)
                JOIN unnest(k_was, k_epoch, k_to, k_state_since, k_due, k_failures, k_crashes, k_keep_until, k_queue,
                    k_claim_order,
                    k_expires, k_key_held_until, k_body, k_owner, k_attempts) WITH ORDINALITY
                    AS k (was, epoch, become, state_since, due, failures, crashes, keep_until, queue, claim_order,
                        expires, key_held_until, body,
                    owner, attempts, kind)
                ON k.kind = p.kind) AS c
            WHERE j.id = ANY (c_id) AND j.id = c.id AND j.state = c.was AND j.epoch = c.epoch
                AND j.owner IS NOT DISTINCT FROM c.owner AND c.become IS NOT NULL
            RETURNING c.n)
        SELECT coalesce(array_agg(n::int), '{}') INTO made FROM updated;
        IF array_position(k_to, NULL) IS NOT NULL THEN
            WITH deleted AS (
                DELETE FROM {s}.job j USING (
                    SELECT p.id, p.n, k.* FROM unnest(c_id, c_kind) WITH ORDINALITY AS p (id, kind, n)
                    JOIN unnest(k_was, k_epoch, k_to, k_owner) WITH ORDINALITY AS k (was, epoch, become, owner, kind)
                    ON k.kind = p.kind) AS c
                WHERE j.id = ANY (c_id) AND j.id = c.id AND j.state = c.was AND j.epoch = c.epoch
                    AND j.owner IS NOT DISTINCT FROM c.owner AND c.become IS NULL
                RETURNING c.n)
            SELECT coalesce(array_agg(n::int), '{}') INTO deleted_ FROM deleted;
            made := made || deleted_;
        END IF;
    ELSE
        FOR c IN
            SELECT p.id, p.note, p.n, k.* FROM unnest(c_id, c_kind, c_note) WITH ORDINALITY AS p (id, kind, note, n)
            JOIN unnest(k_was, k_epoch, k_to, k_state_since, k_due, k_failures, k_crashes, k_keep_until, k_queue,
                k_claim_order,
                k_expires, k_key_held_until, k_body, k_owner, k_attempts) WITH ORDINALITY
                AS k (was, epoch, become, state_since, due, failures, crashes, keep_until, queue, claim_order, expires,
                    key_held_until, body, owner,
                attempts, kind)
            ON k.kind = p.kind ORDER BY p.n
        LOOP
            IF c.become IS NULL THEN
                DELETE FROM {s}.job j
                WHERE j.id = c.id AND j.state = c.was AND j.epoch = c.epoch AND j.owner IS NOT DISTINCT FROM c.owner;
                made := CASE WHEN FOUND THEN made || c.n::int ELSE made END;
                CONTINUE;
            END IF;
            IF c.key_held_until > 0 THEN
                -- Whoever held the key loses it if its time is over.
                UPDATE {s}.job j SET key_held_until = 0 WHERE j.key_held_until BETWEEN 1 AND now_ AND (j.task, j.key) =
                    (SELECT o.task, o.key FROM {s}.job o WHERE o.id = c.id AND o.state = c.was AND o.epoch = c.epoch);
            END IF;
            BEGIN
                UPDATE {s}.job j SET state = c.become, owner = NULL, state_since = c.state_since, due = coalesce(c.due,
                    j.due),
                    failures = c.failures, crashes = c.crashes, keep_until = c.keep_until, note = c.note,
                    queue = coalesce(c.queue, j.queue), claim_order = coalesce(c.claim_order, j.claim_order),
                    expires = coalesce(c.expires, j.expires), key_held_until = coalesce(c.key_held_until,
                        j.key_held_until),
                    body = coalesce(c.body, j.body), attempts = coalesce(c.attempts, j.attempts),
                    out_of_order = c.become <= 1 AND (coalesce(c.due, j.due) < in_order_from
                        OR (c.become = 1 AND abs(coalesce(c.claim_order, j.claim_order)) > 1))
                WHERE j.id = c.id AND j.state = c.was AND j.epoch = c.epoch AND j.owner IS NOT DISTINCT FROM c.owner;
                made := CASE WHEN FOUND THEN made || c.n::int ELSE made END;
            EXCEPTION WHEN unique_violation THEN
                NULL;  -- another job holds the key
            END;
        END LOOP;
    END IF;
    IF limited THEN
        IF 3 <= ANY (k_was) THEN
            -- Jobs that come back from their end: the task may have a limit since.
            UPDATE {s}.job SET lane = '' WHERE id = ANY (c_id) AND lane IS NULL AND state < 2 AND (
                'task:' || task IN (SELECT l.name FROM {s}.limits l)
                OR 'each:' || task IN (SELECT l.name FROM {s}.limits l));
        END IF;
        IF 1 = ANY (k_to) THEN
            INSERT INTO {s}.lane (queue, band, task, lane)
            SELECT DISTINCT j.queue, (j.claim_order < 0)::int - (j.claim_order > 0)::int, j.task, coalesce(j.lane, '')
            FROM {s}.job j WHERE j.id = ANY (c_id) AND j.state = 1 AND j.lane IS NOT NULL
                AND EXISTS (SELECT FROM {s}.limits e WHERE e.name = 'each:' || j.task);
        END IF;
    END IF;
    RETURN made;
END
$function$
