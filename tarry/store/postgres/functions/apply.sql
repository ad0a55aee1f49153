-- apply_v1: as apply_v2, for exchange_v1 as the first tarry made it, where it may not be replaced.
--
-- Arguments  as apply_v2, without k_attempts
-- Answer     as apply_v2
-- Cost       as apply_v2
CREATE OR REPLACE FUNCTION {s}.apply_v1(c_id uuid[], c_kind int[], c_note bytea[], k_was smallint[], k_epoch int[],
    k_to smallint[], k_since bigint[], k_due bigint[], k_failures int[], k_losses int[], k_until bigint[],
    k_queue text[], k_rank bigint[], k_expires bigint[], k_holds bigint[], k_body bytea[], k_owner text[],
    singly boolean, now_ bigint)
RETURNS int[] LANGUAGE plpgsql AS $function$
BEGIN
    RETURN {s}.apply_v2(
        c_id, c_kind, c_note, k_was, k_epoch, k_to, k_since, k_due, k_failures, k_losses, k_until, k_queue, k_rank,
        k_expires, k_holds, k_body, k_owner, array_fill(NULL::bytea, ARRAY[cardinality(k_was)]), singly, now_);
END
$function$
