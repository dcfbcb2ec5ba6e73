-- KEYS  resource: a hash with the stock in a field; optionally receipts: a hash
-- ARGV  fencing token, field, how many; with receipts: who takes
-- reply what is left, -1 stale token, -2 not enough; of who has a receipt already, what was left then: nothing is taken twice
if #ARGV ~= #KEYS + 2 then return redis.error_reply('ERR token, field and amount, and a receipt\'s name for its key') end
local amount = tonumber(ARGV[3])
if not amount or amount < 1 or amount > 2 ^ 53 or amount % 1 ~= 0 or not string.find(ARGV[3], '^%d+$') then
  return redis.error_reply('ERR the amount is a whole number above 0')
end
if ARGV[2] == 'fence' then return redis.error_reply('ERR the field fence is the token\'s') end
if KEYS[2] then
  local receipt = redis.call('HGET', KEYS[2], ARGV[4])
  if receipt then return tonumber(string.match(receipt, '^%d+ (%d+)$')) end
end
local stale = behind(KEYS[1], ARGV[1])
if stale then return stale end
local left = redis.call('HGET', KEYS[1], ARGV[2]) or '0'
if not string.find(left, '^%d+$') or tonumber(left) > 2 ^ 53 then
  return redis.error_reply('ERR the stock is not a whole number')
end
if tonumber(left) < amount then return -2 end
-- Written with all digits: a large number turns into 1e+15 else.
left = string.format('%.0f', tonumber(left) - amount)
if KEYS[2] then redis.call('HSET', KEYS[2], ARGV[4], ARGV[1] .. ' ' .. left) end
redis.call('HSET', KEYS[1], ARGV[2], left, 'fence', ARGV[1])
return tonumber(left)
