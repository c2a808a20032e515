# A server that starts in a millisecond, for tests that start hundreds: `sh quick_server.sh`.
#
# Of revision 2025-11-25; its client writes compact JSON with ids that are strings. The tool `pid`
# returns its process; with `hang` it never answers.
while read -r line; do
  id=${line#*'"id":'}
  id=${id%%[,\}]*}
  case $line in
    *'"method":"initialize"'*)
      result='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
      result=$result'"serverInfo":{"name":"quick","version":"1"}}' ;;
    *'"method":"tools/list"'*)
      result='{"tools":[{"name":"pid","inputSchema":{"type":"object"}}]}' ;;
    *'"hang"'*) continue ;;
    *'"method":"tools/call"'*)
      result='{"content":[{"type":"text","text":"'$$'"}]}' ;;
    *) continue ;;
  esac
  echo '{"jsonrpc":"2.0","id":'"$id"',"result":'"$result"'}'
done
