-- ARGV: ids. Answers their records and their entries of `run`.
return {lib.records_of(ARGV), lib.fetched(lib.RUN, ARGV)}
