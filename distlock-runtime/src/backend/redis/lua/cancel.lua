-- CANCEL
-- KEYS lock, tombstones, queue, waiters          ARGV value, owner, tombstone's life in ms
-- Gives 1: it held the lock | 0: it didn't. Repeat: 0, with a new tombstone. Leaving the queue comes first: a write
-- that needs no memory, so that a full server takes the rest.
pcall(leave, KEYS[3], KEYS[4], ARGV[2])
local now = now_ms()
local refused = bury(KEYS[2], ARGV[2], ARGV[3], now)
local held = 0
if redis.pcall('get', KEYS[1]) == ARGV[1] then
  held = 1
  redis.call('del', KEYS[1])
  if redis.call('exists', KEYS[3]) == 1 then pcall(hand_on, KEYS[1], KEYS[3], KEYS[4]) end
end
return refused or held
