-- LATCH_LOOK
-- KEYS latch          ARGV number, retention ms [, channel or '-', longest list of channels]
-- Gives how many are left. With a channel: makes the latch if there is none, and its opening will be told to the channel.
local left, failure, channels = look()
if failure then return failure end
if not ARGV[3] then return left or tonumber(ARGV[1]) end
if not left then
  left = tonumber(ARGV[1])
  redis.call('hset', KEYS[1], 'k', 'latch', 'l', ARGV[1], 'c', ARGV[1])
end
if left > 0 and ARGV[3] ~= '-' and not string.find(' ' .. channels .. ' ', ' ' .. ARGV[3] .. ' ', 1, true) then
  local _, count = string.gsub(channels, '%S+', '')
  if count < tonumber(ARGV[4]) then redis.call('hset', KEYS[1], 'w', channels .. ' ' .. ARGV[3]) end
end
remember()
return left
