-- room_under_v1: how many may start now under a level, after what has ended and started in the same transaction.
--
-- Arguments
--   numbers  of limit_numbers_v1
--   name, running, next   the level, as it is in the table
--   ended, started   how many have, by the names of levels
-- Answer     as room_v1
-- Cost       no look at a table
CREATE OR REPLACE FUNCTION {s}.room_under_v1(numbers bigint[], name text, running bigint, next bigint, ended jsonb,
    started jsonb, now_ bigint, OUT room bigint, OUT again bigint) LANGUAGE plpgsql IMMUTABLE
AS $function$
DECLARE
    starts bigint := coalesce((started ->> name)::bigint, 0);
    now_running bigint := greatest(0, running - coalesce((ended ->> name)::bigint, 0)) + starts;
    on_time bigint;
BEGIN
    room := CASE WHEN numbers[1] IS NULL THEN {unlimited} ELSE greatest(0, numbers[1] - now_running) END;
    IF numbers[2] > 0 AND room > 0 THEN
        on_time := CASE WHEN next <= now_ + numbers[5] THEN next ELSE now_ END;
        on_time := CASE WHEN starts > 0 THEN greatest(on_time, now_) + starts * numbers[4] ELSE on_time END;
        room := least(room,
            greatest(0, numbers[3] - (greatest(0, on_time - now_) + numbers[4] - 1) / numbers[4]));
        again := CASE WHEN room = 0 THEN on_time - (numbers[3] - 1) * numbers[4] END;
    END IF;
END
$function$
