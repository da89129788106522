" Syntax of pisa attention specs (docs/LANGUAGE.md). In: a .pisa file. Out: groups pisaSpec, pisaName, pisaClause,
" pisaField, pisaValue, pisaNumber, pisaDelimiter, pisaComment.
if exists('b:current_syntax')
  finish
endif
let s:cpo = &cpo
set cpo&vim

syntax case match
syntax iskeyword @,48-57,_

" Keywords of the spec's own block, and of the blocks inside.
let s:clauses = 'target shape blocks pyramid route attend below phases pages schedule tune vary'
let s:fields = 'heads kv_heads head_dim type mask query key leaf group score reduce keep density threshold variance always'
      \ . ' start decode_start all selected rest mass query_tile size half_tile lists leaf_stage'
" What may stand behind a keyword.
let s:values = 'sm_90a bf16 fp16 none causal off on sum max lse mass max_mass diagonal full drop taylor hybrid taylor_0'
      \ . ' taylor_1 taylor_hybrid zeroth_order second_order separate union automatic clustered fused flat top_k pyramid'
      \ . ' mean half_variance log covariance residual key_variance log_covariance log_residual log_key_variance dense'
      \ . ' tokens use prefill decode heads first last previous current window root same exact'

" Later groups win where both match: a keyword begins a statement.
let s:begins = '\%(\%(^\|[{;]\)\s*\)\@<='
let s:any = {words -> '\<\%(' . join(split(words), '\|') . '\)\>'}
execute 'syntax match pisaValue "' . s:any(s:values) . '"'
execute 'syntax match pisaField "' . s:begins . s:any(s:fields) . '"'
execute 'syntax match pisaClause "' . s:begins . s:any(s:clauses) . '"'
syntax match pisaSpec "\<spec\>" nextgroup=pisaName skipwhite
syntax match pisaName "\<\h\w*\>" contained
syntax match pisaNumber "\<\d\+\%(\.\.\d\+\|\.\d\+\)\=\>"
syntax match pisaDelimiter "[{};,+]"
syntax match pisaComment "#.*$" contains=@Spell

highlight default link pisaSpec Structure
highlight default link pisaName Identifier
highlight default link pisaClause Keyword
highlight default link pisaField Type
highlight default link pisaValue Constant
highlight default link pisaNumber Number
highlight default link pisaDelimiter Delimiter
highlight default link pisaComment Comment

let b:current_syntax = 'pisa'
let &cpo = s:cpo
unlet s:cpo s:clauses s:fields s:values s:begins s:any
