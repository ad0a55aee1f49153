-- lock_claims_v1: locks what claims of jobs under these limits take in turn: the level rows of tasks and of queues with a
-- limit. All lock in the order of names, so that claims do not deadlock; also what ends lower, which would come later.
--
-- Arguments
--   l_name   the limits
--   e_name   levels that ends lower
-- Cost       one row of level for each
CREATE OR REPLACE FUNCTION {s}.lock_claims_v1(l_name text[], e_name text[]) RETURNS void LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    names text[] := ARRAY(
        SELECT n.name FROM unnest(l_name) AS n (name) WHERE starts_with(n.name, 'queue:')
        UNION SELECT 'task:' || substr(n.name, 6) FROM unnest(l_name) AS n (name) WHERE NOT starts_with(n.name, 'queue:')
        UNION SELECT n.name FROM unnest(e_name) AS n (name) WHERE NOT starts_with(n.name, 'each:'));
BEGIN
    -- First those that are not there, which cannot be locked: who waits until another one has made them must hold none.
    IF (SELECT count(*) FROM {s}.level l WHERE l.name = ANY (names)) < cardinality(names) THEN
        INSERT INTO {s}.level SELECT n.name, 0, 0 FROM unnest(names) AS n (name) ORDER BY n.name COLLATE "C"
        ON CONFLICT DO NOTHING;
    END IF;
    PERFORM FROM {s}.level l WHERE l.name = ANY (names) ORDER BY l.name FOR UPDATE;
END
$function$
