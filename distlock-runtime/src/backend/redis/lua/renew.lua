-- RENEW
-- KEYS locks          ARGV a value for each, then a ttl in ms for each
-- Gives the indexes, from 1, of those that aren't ours any more. Never creates a lock. Repeat: the same.
local holders = redis.call('mget', unpack(KEYS))
local gone = {}
for i = 1, #KEYS do
  if holders[i] == ARGV[i] then
    redis.call('pexpire', KEYS[i], ARGV[#KEYS + i])
  else
    gone[#gone + 1] = i
  end
end
return gone
