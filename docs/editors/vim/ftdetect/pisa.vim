" In: a file name. Out: filetype pisa for *.pisa.
autocmd BufNewFile,BufRead *.pisa setfiletype pisa
