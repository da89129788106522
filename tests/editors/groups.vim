" In: files as arguments, g:out. Out: into g:out a line `file:line:column group` for every word and number of theirs, in
" words of Vim: group is the name of the syntax group there, '' where there is none.
let s:lines = []
for s:file in argv()
  execute 'edit' fnameescape(s:file)
  call add(s:lines, s:file . ' filetype ' . &filetype)
  for s:row in range(1, line('$'))
    let s:text = getline(s:row)
    let s:at = match(s:text, '\w\+')
    while s:at >= 0
      let s:group = synIDattr(synID(s:row, s:at + 1, 1), 'name')
      call add(s:lines, s:file . ':' . s:row . ':' . (s:at + 1) . ' ' . s:group)
      let s:at = match(s:text, '\w\+', matchend(s:text, '\w\+', s:at))
    endwhile
  endfor
endfor
call writefile(s:lines, g:out)
qall!
