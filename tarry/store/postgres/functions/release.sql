-- release_v1: makes blocked nodes of a flow ready or scheduled, as `rules.release` in tarry/model/flow/rules.py.
--
-- Arguments
--   flow     the id of the flow, whose row the caller has locked
--   firsts, counts   one element for each range of nodes: the index of the first one, and how many
--   now_     microseconds
-- Answer     the ids of those that were blocked, 16 bytes each
-- Cost       one statement, which looks up job_pkey once a node. With limits also one row of lane for each lane.
CREATE OR REPLACE FUNCTION {s}.release_v1(flow uuid, firsts bigint[], counts bigint[], now_ bigint)
RETURNS bytea LANGUAGE plpgsql AS $function$
DECLARE
    in_order_from bigint := {clock} - {stored_within};
    limited boolean := EXISTS (SELECT FROM {s}.limits l);
    prefix text := left(flow::text, 28);
    ids uuid[];
    answer bytea;
BEGIN
    IF cardinality(firsts) = 1 AND counts[1] = 1 THEN
        ids := ARRAY[prefix || lpad(to_hex(firsts[1]), 8, '0')];
    ELSE
        ids := ARRAY(SELECT (prefix || lpad(to_hex(i), 8, '0'))::uuid
            FROM unnest(firsts, counts) AS r (first, n) CROSS JOIN generate_series(r.first, r.first + r.n - 1) AS i);
    END IF;
    WITH released AS (
        UPDATE {s}.job j SET state_since = now_,
            state = CASE WHEN j.due > now_ OR (j.due > 0 AND j.due < {relative}) THEN 0 ELSE 1 END,
            due = CASE WHEN j.due < {relative} THEN now_ + j.due ELSE greatest(now_, j.due) END,
            expires = CASE WHEN j.expires > 0 AND j.expires < {relative}
                THEN CASE WHEN j.due < {relative} THEN now_ + j.due ELSE greatest(now_, j.due) END + j.expires
                ELSE j.expires END,
            lane = CASE WHEN limited AND j.lane IS NULL AND EXISTS (
                SELECT FROM {s}.limits l WHERE l.name IN ('task:' || j.task, 'each:' || j.task))
                THEN '' ELSE j.lane END,
            out_of_order = CASE WHEN j.due < {relative} THEN now_ + j.due ELSE greatest(now_, j.due) END < in_order_from
                OR (abs(j.claim_order) > 1 AND j.due <= CASE WHEN j.due < {relative} THEN 0 ELSE now_ END)
        WHERE j.id = ANY (ids) AND j.state = -1
        RETURNING j.id)
    SELECT string_agg(uuid_send(r.id), '') INTO answer FROM released r;
    IF limited THEN
        INSERT INTO {s}.lane (queue, band, task, lane)
        SELECT DISTINCT j.queue, (j.claim_order < 0)::int - (j.claim_order > 0)::int, j.task, j.lane FROM {s}.job j
        WHERE j.id = ANY (ids) AND j.state = 1 AND j.lane IS NOT NULL
            AND EXISTS (SELECT FROM {s}.limits e WHERE e.name = 'each:' || j.task);
    END IF;
    RETURN coalesce(answer, '');
END
$function$
