-- RECORD_WITHDRAW, for a claim whose outcome nobody saw and whose work was never begun.
-- KEYS record, mark of this owner's withdrawal          ARGV owner, the mark's life in ms
-- Gives 1: it stood in flight and is forgotten | 0: it didn't. Repeat: 0. The mark makes a claim that arrives later harmless.
local found = redis.pcall('hmget', KEYS[1], 's', 'o', 'w')
if found.err then return found end
local withdrawn = 0
if found[1] == 'i' and found[2] == ARGV[1] then
  redis.call('del', KEYS[1])
  notify(found[3])
  withdrawn = 1
end
redis.call('set', KEYS[2], '1', 'PX', ARGV[2])
return withdrawn
