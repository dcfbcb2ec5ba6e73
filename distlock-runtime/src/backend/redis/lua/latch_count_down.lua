-- LATCH_COUNT_DOWN
-- KEYS latch          ARGV number, retention ms, token, by how many, message for those who wait
-- Gives how many are left. Makes the latch if there is none. Repeat by the same token: counts once.
local left, failure, channels = look()
if failure then return failure end
left = left or tonumber(ARGV[1])
if left > 0 and not redis.call('hget', KEYS[1], ARGV[3]) then
  left = math.max(0, left - ARGV[4])
  redis.call('hset', KEYS[1], 'k', 'latch', 'l', ARGV[1], 'c', digits(left), ARGV[3], ARGV[4])
  if left == 0 then
    redis.call('hdel', KEYS[1], 'w')
    for channel in string.gmatch(channels, '%S+') do publish(channel, ARGV[5]) end
  end
end
remember()
return left
