-- QUOTA_RESERVE
-- KEYS places, bytes          ARGV record, ms to hold the place, most records, most bytes
-- Gives {1}: it has its place | {0, records, bytes}: there is none. Repeat: {1}. Gives back 1000 ended places at most.
local now = now_ms()
local ended = redis.call('zrange', KEYS[1], 0, 999, 'withscores')
for i = 1, #ended, 2 do
  if tonumber(ended[i + 1]) > now then break end
  give_back(ended[i])
end
if redis.call('zscore', KEYS[1], ARGV[1]) then return { 1 } end
local records, bytes = redis.call('zcard', KEYS[1]), sum()
if records >= tonumber(ARGV[3]) or bytes >= tonumber(ARGV[4]) then return { 0, records, digits(bytes) } end
redis.call('zadd', KEYS[1], digits(now + ARGV[2]), ARGV[1])
redis.call('hset', KEYS[2], 't', digits(bytes))
keep(tonumber(ARGV[2]))
return { 1 }
