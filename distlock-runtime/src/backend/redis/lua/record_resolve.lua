-- RECORD_RESOLVE, for a record whose outcome nobody knows.
-- KEYS record          ARGV new state (c, t, u, or r to forget), retention ms, response or reason, fingerprint or '' for any
-- Gives 1: settled so | 0: its outcome is known, it is another request's, or somebody is at it | -1: there is none.
-- Repeat: 0, or -1 of a forgotten one. A late settlement of whoever had claimed it is refused, since it isn't in flight any more.
local found = redis.pcall('hmget', KEYS[1], 's', 'u', 'p', 'w')
if found.err then return found end
local state = found[1]
if not state then return -1 end
local lapsed = state == 'i' and number(found[2]) <= now_ms()
if (state ~= 'u' and not lapsed) or (ARGV[4] ~= '' and ARGV[4] ~= found[3]) then return 0 end
if ARGV[1] == 'r' then
  redis.call('del', KEYS[1])
else
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('hset', KEYS[1], 's', ARGV[1], 'b', ARGV[3], 'o', '-')
  redis.call('hdel', KEYS[1], 'u', 'k', 'a', 'w')
end
notify(found[4])
return 1
