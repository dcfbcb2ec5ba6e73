-- QUOTA_CHARGE
-- KEYS places, bytes          ARGV record, bytes, ms that it is kept (0 gives the place back)
-- Gives 1: so it is | 0: it has no place. Repeat: the same.
if not redis.call('zscore', KEYS[1], ARGV[1]) then return 0 end
if ARGV[3] == '0' then
  give_back(ARGV[1])
else
  redis.call('zadd', KEYS[1], digits(now_ms() + ARGV[3]), ARGV[1])
  set_bytes(ARGV[1], tonumber(ARGV[2]))
  keep(tonumber(ARGV[3]))
end
return 1
