-- KEYS  resource: a hash
-- ARGV  fencing token; pairs of field and value
-- reply 1 written, -1 stale: somebody with a larger token wrote before; nothing was changed
if #ARGV < 3 or #ARGV % 2 == 0 then return redis.error_reply('ERR a token, then pairs of field and value') end
local stale = behind(KEYS[1], ARGV[1])
if stale then return stale end
for at = 2, #ARGV, 2 do
  if ARGV[at] == 'fence' then return redis.error_reply('ERR the field fence is the token\'s') end
end
for at = 2, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1])
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
return 1
