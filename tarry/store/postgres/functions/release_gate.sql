-- release_gate_v1: release_flow_v1 for workers of earlier versions, which take no turns: of the first flow.
--
-- Arguments
--   most     how many nodes to release at most
--   now_     microseconds
-- Answer     whether there was such a flow, then as release_flow_v1
-- Cost       that of release_flow_v1
CREATE OR REPLACE FUNCTION {s}.release_gate_v1(most bigint, now_ bigint, OUT found_one boolean, OUT released bigint,
    OUT tend boolean, OUT ended boolean, OUT awake bytea)
LANGUAGE sql AS $function$
    SELECT served IS NOT NULL, released, tend, ended, awake
    FROM {s}.release_flow_v1('00000000-0000-0000-0000-000000000000', most, now_)
$function$
